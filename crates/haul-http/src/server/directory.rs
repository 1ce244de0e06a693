//! Lists a directory, some entries at a time.

use std::sync::Arc;

use haul_net::Jail;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, statat};
use rustix::io::{Errno, Result};

use super::described::Described;
use super::limits;
use super::share::Share;

/// An entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) described: Described,
}

/// Whether to describe a link or its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Its target, if that is inside the jail; a dangling link is left out.
    Follow,
    /// The link itself.
    Keep,
}

/// A directory that is being listed.
pub(super) struct Listing {
    share: Arc<Share>,
    links: Links,
    path: Vec<u8>,
    /// `None` while a thread uses it, at the end, and after an error.
    directory: Option<Dir>,
}

impl Listing {
    /// Opens the directory at a path.
    pub(super) async fn open(share: &Arc<Share>, path: Vec<u8>, links: Links) -> Result<Self> {
        let inside = Arc::clone(share);
        let opened = share.pool.run_short(move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            Ok::<_, Errno>((Dir::new(inside.jail.resolve(&path, flags)?)?, path))
        });
        let (directory, path) = opened.await?;
        Ok(Self { share: Arc::clone(share), links, path, directory: Some(directory) })
    }

    /// The next entries; none at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<Entry>> {
        let Some(mut directory) = self.directory.take() else { return Ok(Vec::new()) };
        let (share, links, path) = (Arc::clone(&self.share), self.links, self.path.clone());
        let read = self.share.pool.run_short(move || {
            let entries = read(&share.jail, &path, &mut directory, links);
            (directory, entries)
        });
        let (directory, entries) = read.await;
        let entries = entries?;
        if !entries.is_empty() {
            self.directory = Some(directory);
        }
        Ok(entries)
    }
}

fn read(jail: &Jail, path: &[u8], directory: &mut Dir, links: Links) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while entries.len() < limits::ENTRIES {
        let Some(entry) = directory.read() else { break };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let described = statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW);
        let described = described.map(|stat| Described::new(&stat)).and_then(|described| {
            if links == Links::Keep || described.kind != FileType::Symlink {
                return Ok(described);
            }
            // Only a path that is resolved from the root is certain to stay inside.
            jail.stat(&below(path, name), true).map(|stat| Described::new(&stat))
        });
        match described {
            Ok(described) => entries.push(Entry { name: name.to_vec(), described }),
            // It was removed in the meantime, is a link without a target, or is not accessible.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(entries)
}

/// The path of an entry of a directory.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
