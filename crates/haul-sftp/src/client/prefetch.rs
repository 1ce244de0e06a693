//! Prefetched requests of a lane. They are sent before their results are needed, most along with the greeting, so that
//! they cost no RTT of their own. An equal request soon afterwards gets the prefetched response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_storage::Range;

use crate::codec::{Attrs, Handle, OpenFlags, Request};

/// The age up to which a prefetched response is used; an older one may be outdated.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// Paths with this RTT or more are long. On shorter ones, saving an RTT does not matter.
pub(super) const LONG: Duration = Duration::from_millis(10);

/// The first handle that OpenSSH returns in a session.
const FIRST_HANDLE: [u8; 4] = [0; 4];

/// Bytes of a file that are requested on every new lane along with its greeting: about what TCP carries in its first
/// two RTTs.
pub(super) const PIECE: u64 = 64 << 10;

/// Prefetched requests, each with its response.
#[derive(Debug)]
pub(super) struct Prefetch<A> {
    /// False only if `entries` is empty; spares `take` the lock.
    any: AtomicBool,
    entries: Mutex<Vec<Early<A>>>,
}

#[derive(Debug)]
struct Early<A> {
    request: Request,
    response: A,
    until: Instant,
}

impl<A> Prefetch<A> {
    /// Prefetched requests that were just sent.
    pub(super) fn new(requests: Vec<(Request, A)>) -> Self {
        let prefetch = Self { any: AtomicBool::new(false), entries: Mutex::default() };
        requests.into_iter().for_each(|(request, response)| prefetch.add(request, response));
        prefetch
    }

    /// Adds a request that was just sent.
    pub(super) fn add(&self, request: Request, response: A) {
        self.forget();
        self.lock().push(Early { request, response, until: Instant::now() + FRESH });
        self.any.store(true, Ordering::Release);
    }

    /// True only if no prefetched response is left, outdated ones included.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Whether there is a fresh response to this request.
    pub(super) fn has(&self, request: &Request) -> bool {
        let now = Instant::now();
        self.lock().iter().any(|early| early.request == *request && early.until >= now)
    }

    /// Removes and returns the fresh response to a request.
    pub(super) fn take(&self, request: &Request) -> Option<A> {
        if self.is_empty() {
            return None;
        }
        let mut entries = self.lock();
        let now = Instant::now();
        let fresh = |early: &Early<A>| early.request == *request && early.until >= now;
        let found = entries.iter().position(fresh).map(|at| entries.remove(at).response);
        self.any.store(!entries.is_empty(), Ordering::Release);
        found
    }

    /// Removes and returns the READs of a file that a prefetched request has opened as `handle`.
    pub(super) fn take_pieces(&self, handle: &Handle) -> Vec<(Range, A)> {
        let mut entries = self.lock();
        let (mut pieces, mut rest) = (Vec::new(), Vec::new());
        for early in entries.drain(..) {
            match early.request {
                Request::Read { handle: of, offset, length } if of == *handle => {
                    pieces.push((Range::new(offset, length.into()), early.response));
                }
                request => rest.push(Early { request, ..early }),
            }
        }
        *entries = rest;
        self.any.store(!entries.is_empty(), Ordering::Release);
        pieces
    }

    /// Removes and returns the fresh response to an OPENDIR, with the READDIRs behind it, in order. Outdated READDIRs
    /// too: the handle's position is past them, so their names are not returned again. Without a fresh OPENDIR of
    /// this directory all are left, since they belong to another one.
    pub(super) fn take_directory(&self, open: &Request) -> Option<(A, Vec<A>)> {
        if self.is_empty() {
            return None;
        }
        let mut entries = self.lock();
        let now = Instant::now();
        let at = entries.iter().position(|early| early.request == *open && early.until >= now)?;
        let opened = entries.remove(at).response;
        let is_names = |early: &mut Early<A>| matches!(early.request, Request::Readdir(_));
        let names = entries.extract_if(.., is_names).map(|early| early.response).collect();
        self.any.store(!entries.is_empty(), Ordering::Release);
        Some((opened, names))
    }

    /// Drops outdated responses.
    pub(super) fn forget(&self) {
        let mut entries = self.lock();
        let now = Instant::now();
        entries.retain(|early| early.until >= now);
        self.any.store(!entries.is_empty(), Ordering::Release);
    }

    /// Applies `change` to the request of each remaining response.
    pub(super) fn change(&self, mut change: impl FnMut(&mut Request)) {
        self.lock().iter_mut().for_each(|early| change(&mut early.request));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Early<A>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that determine the type of a source path of the user, and list it if it is a directory.
pub(super) fn of_source(requested: &Bytes) -> Vec<Request> {
    let names = || Request::Readdir(first_handle());
    vec![
        Request::Realpath(requested.clone()),
        Request::Stat(requested.clone()),
        Request::Stat(requested.clone()),
        Request::Opendir(requested.clone()),
        names(),
        names(),
        names(),
    ]
}

/// Requests that find the nearest existing directory among the `prefixes` of a destination's path, and look up `name`
/// in the destination, if it is a directory.
pub(super) fn of_destination(
    requested: &Bytes,
    prefixes: &[(Bytes, usize)],
    name: Option<&[u8]>,
) -> Vec<Request> {
    let both = |path: &Bytes| [Request::Realpath(path.clone()), Request::Stat(path.clone())];
    let mut requests: Vec<_> = prefixes.iter().flat_map(|(path, _)| both(path)).collect();
    requests.push(Request::Lstat(requested.clone()));
    // A second time, for the storage that is opened there.
    requests.push(Request::Stat(requested.clone()));
    let slash: &[u8] = if requested.ends_with(b"/") { b"" } else { b"/" };
    let within = name.map(|name| Request::Lstat([requested, slash, name].concat().into()));
    requests.extend(within);
    requests
}

/// Requests that open a source path if it is a file. Nothing else may be open on the lane, since [`of_piece`] predicts
/// the handle.
pub(super) fn of_file(requested: &Bytes) -> Vec<Request> {
    let (path, flags, attrs) = (requested.clone(), OpenFlags::READ, Attrs::default());
    vec![Request::Stat(requested.clone()), Request::Open { path, flags, attrs }]
}

/// The request that reads piece `number` of the first file opened on a lane.
pub(super) fn of_piece(number: u64) -> Request {
    let length = u32::try_from(PIECE).unwrap_or(u32::MAX);
    Request::Read { handle: first_handle(), offset: number * PIECE, length }
}

/// Rewrites a prefetched request for a path of the user (`requested`) to the equivalent one for `path`, to which it
/// resolves. As `path` does not end in a link, STAT becomes LSTAT.
pub(super) fn resolved(early: &mut Request, requested: &Bytes, path: &Bytes) {
    match early {
        Request::Stat(of) if of == requested => *early = Request::Lstat(path.clone()),
        Request::Opendir(of) | Request::Open { path: of, .. } if of == requested => {
            of.clone_from(path);
        }
        Request::Lstat(of) => {
            let below = of.strip_prefix(&requested[..]).filter(|below| below.starts_with(b"/"));
            if let Some(below) = below.filter(|_| requested != path) {
                *of = [&path[..], below].concat().into();
            }
        }
        _ => {}
    }
}

/// The handle of the first file or directory opened on a lane.
pub(super) fn first_handle() -> Handle {
    Handle::from(Bytes::from_static(&FIRST_HANDLE))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn each_response_is_used_once_and_only_for_an_equal_request() {
        let requested = Bytes::from_static(b"/a");
        let requests = of_source(&requested);
        let count = requests.len();
        let prefetch = Prefetch::new(requests.into_iter().zip(0..).collect());
        assert_eq!(prefetch.take(&Request::Stat(requested.clone())), Some(1));
        assert_eq!(prefetch.take(&Request::Lstat(requested.clone())), None);
        assert_eq!(prefetch.take(&Request::Stat(requested.clone())), Some(2));
        assert_eq!(prefetch.take(&Request::Stat(requested.clone())), None);
        let other = Bytes::from_static(b"/b");
        prefetch.change(|early| {
            if let Request::Opendir(path) = early {
                path.clone_from(&other);
            }
        });
        assert_eq!(prefetch.take(&Request::Opendir(requested)), None);
        assert_eq!(prefetch.take(&Request::Opendir(other)), Some(3));
        assert_eq!(count, 7);
    }

    #[test]
    fn prefetched_reads_are_taken_by_their_handle() {
        let requests = of_file(&Bytes::from_static(b"/a")).into_iter().chain([of_piece(3)]);
        let prefetch = Prefetch::new(requests.zip(0..).collect());
        let other = Handle::from(Bytes::from_static(b"other"));
        assert_eq!(prefetch.take_pieces(&other), []);
        assert_eq!(prefetch.take_pieces(&first_handle()), [(Range::new(3 * PIECE, PIECE), 2)]);
        assert_eq!(prefetch.take_pieces(&first_handle()), []);
        assert!(!prefetch.is_empty(), "the OPEN is gone");
        let prefetch = Prefetch::new(vec![(of_piece(0), 0)]);
        assert_eq!(prefetch.take_pieces(&first_handle()), [(Range::new(0, PIECE), 0)]);
        assert!(prefetch.is_empty());
    }

    #[test]
    fn prefetched_names_are_taken_only_with_their_directory() {
        let requested = Bytes::from_static(b"/a");
        let prefetch = Prefetch::new(of_source(&requested).into_iter().zip(0..).collect());
        let below = Request::Opendir(Bytes::from_static(b"/a/sub"));
        assert_eq!(prefetch.take_directory(&below), None);
        let open = Request::Opendir(requested);
        assert_eq!(prefetch.take_directory(&open), Some((3, vec![4, 5, 6])));
        assert_eq!(prefetch.take_directory(&open), None);
    }

    #[test]
    fn an_outdated_response_is_not_used() {
        let requested = Bytes::from_static(b"/a");
        let prefetch = Prefetch::new(vec![(Request::Stat(requested.clone()), 1)]);
        prefetch.forget();
        assert!(prefetch.has(&Request::Stat(requested.clone())) && !prefetch.is_empty());
        prefetch.lock()[0].until = Instant::now() - Duration::from_millis(1);
        assert!(!prefetch.has(&Request::Stat(requested.clone())));
        assert_eq!(prefetch.take(&Request::Stat(requested)), None);
        assert!(!prefetch.is_empty());
        prefetch.forget();
        assert!(prefetch.is_empty() && prefetch.lock().is_empty());
    }
}
