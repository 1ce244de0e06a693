//! How attributes are set, and what a server refuses of that.
//!
//! Some servers refuse to set times or modes: sshd with `-P setstat,fsetstat`, partners' and banks' servers,
//! those before an object store. They answer with "unsupported", "permission denied" or "failure". Others
//! report success and set nothing. A file whose attributes cannot be set is still the file, so on what haul has
//! made itself each attribute that is refused is tried alone, and given up with one warning. What was refused is
//! remembered for the host, and in the state directory for the next run, because without times a rerun has to
//! compare sizes only from the first file on.
//!
//! Set-user-ID and set-group-ID bits lend the owner's rights, so a new file gets them only together with its
//! owner, and after it.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::join_all;
use haul_storage::{Error, ErrorKind, Metadata, Result};

use super::error;
use super::host::SftpHost;
use super::inner::Inner;
use super::session::{Pending, Session};
use crate::codec::{Attrs, Extended, Handle, Request, Response, name};

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Set-user-ID, set-group-ID and the sticky bit: some servers refuse these and take the rest.
const SPECIAL: u32 = 0o7000;

/// A time that was set may be read back this many seconds off: FAT keeps every second one.
const STEP: u32 = 2;

/// Receives warnings about a host.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// What a server keeps of the attributes that it is told to set.
#[derive(Default)]
pub(super) struct Attributes {
    no_times: AtomicBool,
    no_mode: AtomicBool,
    /// It sets them by path and not by handle.
    by_path: AtomicBool,
    /// An earlier run has found that out: it is tried once more with the first file.
    recalled: AtomicBool,
    /// Whether a time that was set has been read back.
    seen: AtomicBool,
    /// What was said of it.
    warned: Mutex<HashSet<String>>,
    warn: OnceLock<Warn>,
    /// Where it is remembered.
    place: OnceLock<PathBuf>,
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes")
            .field("no_times", &self.no_times)
            .field("no_mode", &self.no_mode)
            .finish_non_exhaustive()
    }
}

impl Attributes {
    /// Whether the server sets no times.
    pub(super) fn has_no_times(&self) -> bool {
        self.no_times.load(Ordering::Relaxed)
    }

    /// Whether the server sets no modes.
    pub(super) fn has_no_mode(&self) -> bool {
        self.no_mode.load(Ordering::Relaxed)
    }

    /// Leaves out what the server is known to refuse.
    pub(super) fn limit(&self, attrs: &mut Attrs) {
        attrs.times.take_if(|_| self.has_no_times());
        attrs.permissions.take_if(|_| self.has_no_mode());
    }

    /// Reads and keeps what is known of the server in the file `place`.
    pub(super) fn remember_in(&self, place: PathBuf) {
        // Without that file nothing is known.
        let known = fs::read_to_string(&place).unwrap_or_default();
        for line in known.lines() {
            match line {
                "no times" => self.no_times.store(true, Ordering::Relaxed),
                "no modes" => self.no_mode.store(true, Ordering::Relaxed),
                _ => continue,
            }
            self.recalled.store(true, Ordering::Relaxed);
        }
        // The first place holds.
        drop(self.place.set(place));
    }

    /// Warnings go to `warn`, each once. The first receiver holds.
    pub(super) fn warn_through(&self, warn: Warn) {
        drop(self.warn.set(warn));
    }

    fn warn(&self, message: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(message.to_owned())
            && let Some(warn) = self.warn.get()
        {
            warn(message);
        }
    }

    fn keep(&self) {
        let Some(place) = self.place.get() else { return };
        let mut known = String::new();
        if self.has_no_times() {
            known.push_str("no times\n");
        }
        if self.has_no_mode() {
            known.push_str("no modes\n");
        }
        // Where it cannot be kept the next run finds it out anew, and copies a few files for it.
        drop(if known.is_empty() {
            fs::remove_file(place)
        } else {
            let directory = place.parent().map_or(Ok(()), fs::create_dir_all);
            directory.and_then(|()| fs::write(place, known))
        });
    }

    /// These are refused, and were before anything else was known of them.
    fn learn(&self, refused: &[Part]) {
        if refused.is_empty() {
            return;
        }
        for part in refused {
            match part {
                Part::Owner => continue,
                Part::Mode => self.no_mode.store(true, Ordering::Relaxed),
                Part::Times => self.no_times.store(true, Ordering::Relaxed),
            }
            self.keep();
        }
        let names: Vec<&str> = refused.iter().map(|part| part.name()).collect();
        let names = names.join(" and ");
        // Private is the safe side: what they were at the source is not known when a file is created.
        let private = if refused.contains(&Part::Mode) {
            ", and directories and large files stay private (0700, 0600)"
        } else {
            ""
        };
        self.warn(&format!("the server does not set {names}; they are not preserved{private}"));
    }

    fn forget(&self) {
        if let Some(place) = self.place.get() {
            // If it stays the next run tries once more.
            drop(fs::remove_file(place));
        }
    }
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Owner,
    Mode,
    Times,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owners",
            Self::Mode => "modes",
            Self::Times => "times",
        }
    }
}

/// Each attribute alone, in the order in which they are set: a change of owner clears bits of the mode.
fn parts(attrs: &Attrs) -> Vec<(Part, Attrs)> {
    let owner =
        attrs.owner.map(|owner| (Part::Owner, Attrs { owner: Some(owner), ..Attrs::default() }));
    let mode = attrs
        .permissions
        .map(|mode| (Part::Mode, Attrs { permissions: Some(mode), ..Attrs::default() }));
    let times =
        attrs.times.map(|times| (Part::Times, Attrs { times: Some(times), ..Attrs::default() }));
    [owner, mode, times].into_iter().flatten().collect()
}

/// Whether a server says so that it does not set attributes. Of a file that is not ours the last two may mean
/// that file only.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied | ErrorKind::Other)
}

/// What is set on a new file.
pub(super) fn of_new_file(inner: &Inner, metadata: &Metadata) -> Attrs {
    let mut attrs = super::entry::attrs(metadata);
    if attrs.owner.is_none() {
        attrs.permissions = attrs.permissions.map(|mode| mode & !SET_ID);
    }
    if attrs.permissions.is_none() {
        attrs.permissions = Some(inner.default_mode);
    }
    inner.host.attributes.limit(&mut attrs);
    attrs
}

/// Gives a new file its owner where its mode lends the owner's rights, so that both are set, in that order, or
/// neither. It takes a round trip.
pub(super) async fn lend(
    inner: &Inner,
    session: &Session,
    handle: &Handle,
    attrs: &mut Attrs,
) -> Result<()> {
    let lends = attrs.permissions.is_some_and(|mode| mode & SET_ID != 0);
    if !lends || attrs.owner.is_none() {
        return Ok(());
    }
    let owner = Attrs { owner: attrs.owner.take(), ..Attrs::default() };
    let owned = session.request(&Request::Fsetstat(handle.clone(), owner)).answer().await?;
    if let Err(error) = error::done("set the owner", owned) {
        if !is_refusal(&error) {
            return Err(error);
        }
        attrs.permissions = attrs.permissions.map(|mode| mode & !SET_ID);
        inner.host.attributes.learn(&[Part::Owner]);
    }
    Ok(())
}

/// Takes the answer to `attrs`, which were set on a file or directory of haul's own making that is `at` now.
pub(super) async fn settle(
    inner: &Inner,
    outcome: Result<()>,
    at: &Bytes,
    attrs: &Attrs,
) -> Result<()> {
    match outcome {
        Err(error) if is_refusal(&error) => {}
        outcome => return outcome,
    }
    if inner.host.attributes.by_path.load(Ordering::Relaxed) {
        let answer = inner.host.ask(&Request::Setstat(at.clone(), attrs.clone())).await?;
        match error::done("set attributes", answer) {
            Err(error) if is_refusal(&error) => {}
            outcome => return outcome,
        }
    }
    let alone = parts(attrs);
    let tried =
        alone.iter().map(async |(part, alone)| Ok((*part, try_alone(inner, at, alone).await?)));
    let mut refused = Vec::new();
    for outcome in join_all(tried).await {
        let (part, is_set) = outcome?;
        if !is_set {
            refused.push(part);
        }
    }
    let is_usual = attrs.permissions.is_none_or(|mode| mode & SPECIAL == 0);
    if refused.is_empty() && is_usual {
        inner.host.attributes.by_path.store(true, Ordering::Relaxed);
    }
    inner.host.attributes.learn(&refused);
    Ok(())
}

/// Asks for attributes of a new file by its handle, where there is something to set and the server does that.
pub(super) fn ask(
    inner: &Inner,
    session: &Session,
    handle: &Handle,
    attrs: &Attrs,
) -> Option<Pending> {
    let by_path = inner.host.attributes.by_path.load(Ordering::Relaxed);
    let asks = *attrs != Attrs::default() && !by_path;
    asks.then(|| session.request(&Request::Fsetstat(handle.clone(), attrs.clone())))
}

/// What became of [`ask`], for [`settle`].
pub(super) async fn asked(pending: Option<Pending>, attrs: &Attrs) -> Result<()> {
    match pending {
        Some(pending) => error::done("set attributes", pending.answer().await?),
        None if *attrs == Attrs::default() => Ok(()),
        None => Err(Error::new(ErrorKind::Unsupported, "set attributes")),
    }
}

/// Sets one attribute by path, as far as the server lets it. Whether it did.
async fn try_alone(inner: &Inner, at: &Bytes, alone: &Attrs) -> Result<bool> {
    let usual = alone.permissions.filter(|mode| mode & SPECIAL != 0).map(|mode| mode & !SPECIAL);
    let usual = usual.map(|mode| Attrs { permissions: Some(mode), ..Attrs::default() });
    for attrs in std::iter::once(alone).chain(&usual) {
        let answer = inner.host.ask(&Request::Setstat(at.clone(), attrs.clone())).await?;
        match error::done("set attributes", answer) {
            Ok(()) => {
                if attrs != alone {
                    let message = "the server does not set set-ID and sticky bits";
                    inner.host.attributes.warn(message);
                }
                return Ok(true);
            }
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Sets attributes of what is `at` a path, whoever made it. `made`: haul did, so a refusal is the server's way
/// with all.
pub(super) async fn set(inner: &Inner, at: &Bytes, mut attrs: Attrs, made: bool) -> Result<()> {
    inner.host.attributes.limit(&mut attrs);
    if attrs.permissions.is_some_and(|mode| mode & SET_ID != 0) && attrs.owner.is_some() {
        // A change of owner clears these bits.
        let owner = Attrs { owner: attrs.owner.take(), ..Attrs::default() };
        if !try_alone(inner, at, &owner).await? {
            inner.host.attributes.learn(&[Part::Owner]);
            attrs.permissions = attrs.permissions.map(|mode| mode & !SET_ID);
        }
    }
    if attrs == Attrs::default() {
        return Ok(());
    }
    let answer = inner.host.ask(&Request::Setstat(at.clone(), attrs.clone())).await?;
    let outcome = error::done("set attributes", answer);
    match &outcome {
        Err(error) if made || error.kind() == ErrorKind::Unsupported => {
            settle(inner, outcome, at, &attrs).await
        }
        // Whoever may not give a file away is not refused anything else.
        Err(_) if attrs.owner.is_some() => {
            let owner = Attrs { owner: attrs.owner.take(), ..Attrs::default() };
            if attrs != Attrs::default() {
                let answer = inner.host.ask(&Request::Setstat(at.clone(), attrs)).await?;
                error::done("set attributes", answer)?;
            }
            settle(inner, outcome, at, &owner).await
        }
        _ => outcome,
    }
}

/// Sets attributes of a link itself, where the server can and does.
pub(super) async fn set_of_link(inner: &Inner, at: Bytes, mut attrs: Attrs) -> Result<()> {
    inner.host.attributes.limit(&mut attrs);
    if attrs == Attrs::default() || !inner.has(name::LSETSTAT) {
        return Ok(());
    }
    let answer = inner.host.ask(&Request::Extended(Extended::Lsetstat(at, attrs))).await?;
    match error::done("set attributes", answer) {
        // Of a link they mean little.
        Err(error) if is_refusal(&error) => {
            inner.host.attributes.warn("the server does not set the attributes of symbolic links");
            Ok(())
        }
        outcome => outcome,
    }
}

/// The look that tells whether the times of `attrs` were set, where that is not known yet. To be asked for
/// behind them.
pub(super) fn look(inner: &Inner, handle: &Handle, attrs: &Attrs) -> Option<Request> {
    let unknown = !inner.host.attributes.seen.load(Ordering::Relaxed);
    (attrs.times.is_some() && unknown).then(|| Request::Fstat(handle.clone()))
}

/// Takes the answer to [`look`]: whether the times of `attrs` are there. If they are not, and are not at its
/// path `at` either, the server says that it sets times and does not.
pub(super) async fn see(inner: &Inner, seen: Result<Response>, at: &Bytes, attrs: &Attrs) {
    let Some((_, wanted)) = attrs.times else { return };
    let is_there = |answer: &Result<Response>| match answer {
        Ok(Response::Attrs(Attrs { times: Some((_, there)), .. })) => {
            Some(there.abs_diff(wanted) < STEP)
        }
        // That tells nothing.
        _ => None,
    };
    let mut kept = is_there(&seen);
    if kept == Some(false) {
        // Some servers look before they have done what came before, and some while the file is open give the
        // time of its last write.
        kept = is_there(&inner.host.ask(&Request::Lstat(at.clone())).await);
    }
    match kept {
        Some(true) => inner.host.attributes.seen.store(true, Ordering::Relaxed),
        Some(false) if !inner.host.attributes.has_no_times() => {
            inner.host.attributes.learn(&[Part::Times]);
        }
        _ => {}
    }
}

/// Tries anew on a new file what an earlier run was refused, and forgets the refusal if it can be done now;
/// nobody waits for it. `mode`: the one that the file has. The next run counts on it: this one may have compared files by their sizes already.
pub(super) fn try_again(inner: &Inner, session: &Session, handle: &Handle, mode: u32) {
    let attributes = &inner.host.attributes;
    if !attributes.recalled.swap(false, Ordering::Relaxed) {
        return;
    }
    let known = [(Part::Mode, attributes.has_no_mode()), (Part::Times, attributes.has_no_times())];
    let known: Vec<_> = known.into_iter().filter_map(|(part, is)| is.then_some(part)).collect();
    attributes.learn(&known);
    // A time that the server would not give the file by itself; what is written next moves it on.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = u32::try_from(now).unwrap_or(u32::MAX).saturating_sub(10);
    let attrs = |part: Part| match part {
        Part::Times => Attrs { times: Some((time, time)), ..Attrs::default() },
        Part::Mode | Part::Owner => Attrs { permissions: Some(mode), ..Attrs::default() },
    };
    let ask = |part, known: bool| {
        known.then(|| session.request(&Request::Fsetstat(handle.clone(), attrs(part))))
    };
    let times = ask(Part::Times, attributes.has_no_times());
    let mode = ask(Part::Mode, attributes.has_no_mode());
    let look = session.request(&Request::Fstat(handle.clone()));
    let host = Arc::clone(&inner.host);
    inner.host.lanes.spawn(async move {
        let mut granted = true;
        for answer in [times, mode].into_iter().flatten() {
            granted &= matches!(answer.answer().await.map(|it| error::done("try", it)), Ok(Ok(())));
        }
        let there = match look.answer().await {
            Ok(Response::Attrs(attrs)) => attrs.times.map(|(_, modified)| modified),
            _ => None,
        };
        if granted && (there == Some(time) || !host.attributes.has_no_times()) {
            host.attributes.forget();
        }
    });
}

impl SftpHost {
    /// Remembers from one run to the next, in a file of its own in `directory`, which attributes the server
    /// refuses to set. To be called before anything is opened.
    pub fn remember_in(&self, directory: &Path) {
        // The name of the file does not tell the host's.
        let name = blake3::hash(self.name().as_bytes()).to_hex();
        self.attributes.remember_in(directory.join(&name[..32]));
    }

    /// Passes warnings about the server to `warn`, each once.
    pub fn warn_through(&self, warn: Warn) {
        self.attributes.warn_through(warn);
    }
}
