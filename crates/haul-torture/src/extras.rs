//! Choices that were added after the first seeds had been kept. They come from a random sequence of their own, so that
//! the kept seeds of generation 1 still stand for the same steps.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::chance::Chance;
use crate::deletion::Deletion;
use crate::grow::{directories, grow};
use crate::options::Options;
use crate::target::Target;
use crate::tree::{Kind, Tree};
use crate::{acl, at};

/// The current generation: 1 is without extras; 2 adds ACLs, empty sources, source directories that cannot be listed,
/// and what `--delete` may remove.
pub const GENERATION: u32 = 2;

/// The extra choices of an episode.
#[derive(Debug)]
pub(crate) struct Extras {
    chance: Chance,
    is_on: bool,
    /// Whether source and destination keep ACLs.
    acls: bool,
    emptied: bool,
}

impl Extras {
    /// The source of `target` exists already. From generation 2 on, this creates the directory of its destination, to
    /// see whether that keeps ACLs.
    pub(crate) fn new(seed: u64, generation: u32, target: &Target) -> io::Result<Self> {
        let is_on = generation > 1;
        let beside = target.destination.parent().unwrap_or(&target.destination);
        if is_on {
            fs::create_dir_all(beside).map_err(|error| at("making", beside, &error))?;
        }
        let acls =
            is_on && target.keeps.xattrs && acl::are_kept(&target.source) && acl::are_kept(beside);
        Ok(Self { chance: Chance::new(!seed), is_on, acls, emptied: false })
    }

    /// Changes the tree at `root`, after it was grown or changed otherwise.
    pub(crate) fn change(&mut self, root: &Path) -> io::Result<()> {
        if self.acls { acl::scatter(&mut self.chance, root) } else { Ok(()) }
    }

    /// Grows the source again in the step after it was emptied.
    pub(crate) fn regrow(&mut self, target: &Target) -> io::Result<()> {
        if std::mem::take(&mut self.emptied) {
            grow(&mut self.chance, &target.source, 20, &target.features)?;
        }
        Ok(())
    }

    /// Adds to the options of a step, and may empty the source.
    pub(crate) fn vary(&mut self, options: &mut Options, target: &Target) -> io::Result<()> {
        options.acls = self.acls;
        if !self.is_on || !options.delete {
            return Ok(());
        }
        options.deletion = Deletion::random(&mut self.chance);
        if self.chance.one_in(12) {
            self.emptied = true;
            let source = &target.source;
            for entry in fs::read_dir(source).map_err(|error| at("listing", source, &error))? {
                crate::clear(&entry?.path())?;
            }
        }
        Ok(())
    }

    /// May deny an ordinary user the listing of a directory of the source. Returns true if it did.
    ///
    /// Whether a directory in the way of a file is removed before haul notices the failed listing depends on the order,
    /// so there must be none.
    pub(crate) fn lock(
        &mut self,
        options: &Options,
        target: &Target,
        source: &Tree,
        before: &Tree,
    ) -> io::Result<bool> {
        if !self.is_on || self.chance.one_in(2) {
            return Ok(false);
        }
        let is_in_the_way = source.0.iter().any(|(name, node)| {
            let old = before.0.get(name).is_some_and(|old| old.kind == Kind::Directory);
            old && node.kind != Kind::Directory
        });
        let found: Vec<PathBuf> = directories(&target.source)?.split_off(1);
        if found.is_empty() || options.delete && is_in_the_way {
            return Ok(false);
        }
        let path = self.chance.pick(&found);
        let mode = *self.chance.pick(&[0o000, 0o200]);
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|error| at("chmod", path, &error))?;
        Ok(true)
    }
}
