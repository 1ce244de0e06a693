//! Listings. Several READDIRs are in flight, because OpenSSH returns a hundred names at a time and a directory may have
//! a hundred thousand. If a lane is lost, the directory is listed again over another one, and names that were returned
//! already are skipped.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};
use haul_storage::{
    Entry, EntryKind, EntryStream, Error, ErrorKind, RelPath, RelPathError, Result,
};

use super::entry;
use super::error;
use super::host::Tries;
use super::inner::Inner;
use super::opening::{Lane, Opening};
use super::prefetch::first_handle;
use super::session::{Pending, Session};
use crate::codec::{FileKind, Handle, Name, Names, Request, Response, Status};

/// Maximum READDIRs in flight. Except over a long path ([`WITH_OPEN`]), a listing begins with one, since most
/// directories are short; with each response the number doubles.
const AHEAD: usize = 32;

/// READDIRs that are sent along with the OPENDIR over a long path: two responses of OpenSSH with 100
/// names each, and the end.
const WITH_OPEN: usize = 3;

/// Names of a long response that are converted to entries at a time.
const BATCH: usize = 1024;

/// Most names of a directory to remember. If there are more, the listing cannot continue after the loss of a lane.
const REMEMBERED: usize = 65_536;

/// Lists a directory. Fails if it is a symbolic link.
pub(super) async fn list(inner: &Arc<Inner>, path: &RelPath) -> Result<EntryStream> {
    let mut tries = inner.host.tries();
    let mut opened = loop {
        match open(inner, path).await {
            Err(error) if tries.again(&error).await => {}
            outcome => break outcome?,
        }
    };
    let first = opened.readdir();
    let listing = Listing {
        inner: Arc::clone(inner),
        path: path.clone(),
        requested: VecDeque::from([first]),
        opened,
        ahead: 1,
        many: None,
        ended: false,
        returned: Some(HashSet::new()),
        hasher: RandomState::new(),
        tries,
    };
    let batches = stream::unfold(listing, |mut listing| async move {
        let batch = listing.next().await?;
        Some((stream::iter(batch), listing))
    });
    Ok(batches.flatten().boxed())
}

async fn open(inner: &Arc<Inner>, path: &RelPath) -> Result<Opened> {
    // In one flight: what was opened below a link is closed again.
    let (checked, opened) = join(inner.check_parent(path), open_unchecked(inner, path)).await;
    checked?;
    let opened = opened?;
    if !path.is_root() {
        // The LSTAT along with the open has shown that it is not a link.
        inner.directories.learn(path.clone());
    }
    Ok(opened)
}

async fn open_unchecked(inner: &Arc<Inner>, path: &RelPath) -> Result<Opened> {
    let on_server = inner.on_server(path);
    let mut opening = inner.host.opening(false);
    let mut ahead = inner.host.lanes.ahead(&Request::Opendir(on_server.clone()));
    loop {
        let lane = match ahead.take() {
            Some(session) => Opening::ahead(session),
            None => opening.lane().await?,
        };
        match open_on(inner, path, &on_server, &lane).await {
            Ok((handle, names)) => {
                opening.opened();
                let guessed = names.len();
                return Ok(Opened { lane, handle, names, guessed });
            }
            Err(error) => opening.refused(&lane, error)?,
        }
    }
}

async fn open_on(
    inner: &Inner,
    path: &RelPath,
    on_server: &Bytes,
    session: &Session,
) -> Result<(Handle, VecDeque<Pending>)> {
    let look = (!path.is_root()).then(|| session.request(&Request::Lstat(on_server.clone())));
    let opening = Request::Opendir(on_server.clone());
    // The position of a prefetched handle is past its prefetched names: neither may be used without the other.
    let (open, names, ahead) = match session.prefetched_directory(&opening) {
        Some((open, names)) => (open, VecDeque::from(names), None),
        None => {
            let names = |handle: &Handle| vec![Request::Readdir(handle.clone()); WITH_OPEN];
            let (open, ahead) = session.request_ahead(&opening, true, names);
            (open, VecDeque::new(), ahead)
        }
    };
    let look = match look {
        Some(look) => Some(look.response().await?),
        None => None,
    };
    // Wait for the handle even if LSTAT fails, so that it can be closed before the lane is released.
    let opened = error::handle("list", open.response().await?);
    if let Some(look) = look {
        let attrs = error::attrs("list", look);
        if !matches!(&attrs, Ok(attrs) if attrs.kind() == Some(FileKind::Directory)) {
            if let Ok(handle) = opened {
                session.post(&Request::Close(handle));
            }
            let error = attrs.err().unwrap_or(Error::new(ErrorKind::NotADirectory, "list"));
            return Err(inner.at(error, path));
        }
    }
    let handle = opened.map_err(|error| inner.at(error, path))?;
    let names = match ahead {
        Some(ahead) => ahead.of(&handle).into(),
        None if handle == first_handle() => names,
        None => VecDeque::new(),
    };
    Ok((handle, names))
}

struct Listing {
    inner: Arc<Inner>,
    path: RelPath,
    opened: Opened,
    /// Responses to READDIR that are due, in order.
    requested: VecDeque<Pending>,
    /// How many READDIRs to keep in flight.
    ahead: usize,
    /// The rest of a long response.
    many: Option<Names>,
    ended: bool,
    /// Hashes of the names that were returned; `None` once there are too many to remember.
    returned: Option<HashSet<u64>>,
    hasher: RandomState,
    tries: Tries,
}

/// An open directory; closed when it is dropped.
struct Opened {
    lane: Lane,
    handle: Handle,
    /// Prefetched responses to READDIR, which precede those of further requests.
    names: VecDeque<Pending>,
    /// How many of the next responses are to requests that were sent before the handle was known.
    guessed: usize,
}

impl Opened {
    /// The next response to READDIR: a prefetched one, or that to a new request.
    fn readdir(&mut self) -> Pending {
        let ahead = self.names.pop_front();
        ahead.unwrap_or_else(|| self.lane.request(&Request::Readdir(self.handle.clone())))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.lane.post(&Request::Close(self.handle.clone()));
    }
}

impl Listing {
    /// The next entries, and errors for names that cannot be entries.
    async fn next(&mut self) -> Option<Vec<Result<Vec<Entry>>>> {
        loop {
            if let Some(many) = &mut self.many {
                match many.take(BATCH) {
                    Ok(names) if names.is_empty() => self.many = None,
                    Ok(mut names) => {
                        self.remove_returned(&mut names);
                        let batch = self.entries(names).await;
                        if !batch.is_empty() {
                            self.tries.progressed();
                            return Some(batch);
                        }
                    }
                    Err(error) => {
                        let error =
                            Error::new(ErrorKind::Protocol, "list").because(error.to_string());
                        return Some(self.end(error));
                    }
                }
                continue;
            }
            let pending = self.requested.pop_front()?;
            let is_guessed = self.opened.guessed > 0;
            self.opened.guessed = self.opened.guessed.saturating_sub(1);
            match pending.response().await {
                Ok(Response::Names(mut names)) => {
                    self.readdir_ahead();
                    self.remove_returned(&mut names);
                    let batch = self.entries(names).await;
                    if !batch.is_empty() {
                        self.tries.progressed();
                        return Some(batch);
                    }
                }
                // Such long responses are requested one at a time, to limit memory.
                Ok(Response::ManyNames(names)) => {
                    self.ahead = 0;
                    self.many = Some(names);
                    if self.requested.is_empty() && !self.ended {
                        self.requested.push_back(self.opened.readdir());
                    }
                }
                // The requests behind this one end the same way.
                Ok(Response::Status { status: Status::Eof, .. }) => self.ended = true,
                // The directory was not open yet, on a server that does not process requests in order.
                Ok(Response::Status { .. }) if is_guessed => {
                    self.requested.push_back(self.opened.readdir());
                }
                // Errors of requests beyond the end do not matter.
                Err(_) if self.ended => {}
                Err(error) if self.returned.is_some() && self.tries.again(&error).await => {
                    if let Err(error) = self.reopen().await {
                        return Some(self.end(error));
                    }
                }
                other => {
                    let error = other.map_or_else(|e| e, |other| error::unexpected("list", other));
                    return Some(self.end(error));
                }
            }
        }
    }

    /// Opens the directory again, over another lane.
    async fn reopen(&mut self) -> Result<()> {
        self.opened = loop {
            match open(&self.inner, &self.path).await {
                Err(error) if self.tries.again(&error).await => {}
                outcome => break outcome?,
            }
        };
        self.requested = VecDeque::from([self.opened.readdir()]);
        self.ahead = 1;
        Ok(())
    }

    fn end(&mut self, error: Error) -> Vec<Result<Vec<Entry>>> {
        self.ended = true;
        self.many = None;
        self.requested.clear();
        vec![Err(self.inner.at(error, &self.path))]
    }

    fn readdir_ahead(&mut self) {
        if self.ended {
            return;
        }
        self.ahead = (self.ahead * 2).min(AHEAD);
        while self.requested.len() < self.ahead.max(1) {
            self.requested.push_back(self.opened.readdir());
        }
    }

    /// Removes names that were returned before the lane was lost.
    fn remove_returned(&mut self, names: &mut Vec<Name>) {
        if let Some(returned) = &mut self.returned {
            names.retain(|name| returned.insert(self.hasher.hash_one(&name.name)));
        }
        self.returned.take_if(|returned| returned.len() > REMEMBERED);
    }

    async fn entries(&self, names: Vec<Name>) -> Vec<Result<Vec<Entry>>> {
        let mut batch = Vec::new();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            if matches!(&name.name[..], b"." | b"..") {
                continue;
            }
            match self.path.join(&name.name) {
                Ok(path) => {
                    let mut entry = entry::entry(path, &name.attrs);
                    // All known servers return the type bits; any other one takes a further request.
                    if name.attrs.kind().is_none() {
                        match self.inner.look(&entry.path).await {
                            Ok(found) => entry = found,
                            Err(error) => {
                                batch.push(Err(error));
                                continue;
                            }
                        }
                    }
                    entries.push(entry);
                }
                Err(error) => batch.push(Err(self.refused(&name.name, error))),
            }
        }
        for entry in entries.iter().filter(|entry| entry.is_dir()) {
            self.inner.directories.learn(entry.path.clone());
        }
        let links = entries.iter_mut().filter_map(|entry| match &mut entry.kind {
            EntryKind::Symlink(target) => Some((&entry.path, target)),
            _ => None,
        });
        let targets = links.map(async |(path, target)| {
            *target = self.inner.read_link(path).await?;
            Ok(())
        });
        let failed = join_all(targets).await.into_iter().filter_map(Result::err);
        // A link that was removed since it was listed is not an error.
        batch.extend(failed.filter(|error: &Error| error.kind() != ErrorKind::NotFound).map(Err));
        // A link whose target could not be read is not returned as an entry.
        entries.retain(|entry| entry.kind != EntryKind::Symlink(Vec::new()));
        if !entries.is_empty() {
            batch.push(Ok(entries));
        }
        batch
    }

    fn refused(&self, name: &[u8], error: RelPathError) -> Error {
        let name = String::from_utf8_lossy(name).escape_debug().to_string();
        let error = Error::new(ErrorKind::InvalidInput, "list")
            .because(format!("the server lists the name '{name}', which {error}"));
        self.inner.at(error, &self.path)
    }
}
