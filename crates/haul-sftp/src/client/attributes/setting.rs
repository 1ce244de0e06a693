//! Sets attributes: together with the file, one by one if they are refused, and with a check
//! afterwards, since some servers report success and set nothing ([`super::Attributes`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::join_all;
use haul_storage::{Error, ErrorKind, Metadata, Result};

use super::{Part, SET_ID, SPECIAL, STEP, is_refusal, parts};
use crate::client::entry;
use crate::client::error;
use crate::client::inner::Inner;
use crate::client::session::{Pending, Session};
use crate::codec::{Attrs, Extended, Handle, Request, Response, name};

/// The warning about an owner that may not be changed.
const OWNER_DENIED: &str =
    "the server refuses to change owners of existing entries; they are not preserved";

/// The attributes to set on a new file.
pub(in crate::client) fn of_new_file(inner: &Inner, metadata: &Metadata) -> Attrs {
    let mut attrs = entry::attrs(metadata);
    if attrs.owner.is_none() {
        attrs.permissions = attrs.permissions.map(|mode| mode & !SET_ID);
    }
    if attrs.permissions.is_none() {
        attrs.permissions = Some(inner.default_mode);
    }
    inner.host.attributes.limit(&mut attrs);
    attrs
}

/// Sets the owner of a new file first if its mode has set-ID bits, which takes one RTT. If the owner
/// is refused, removes these bits from `attrs`.
pub(in crate::client) async fn set_owner_first(
    inner: &Inner,
    session: &Session,
    handle: &Handle,
    attrs: &mut Attrs,
) -> Result<()> {
    let has_set_id = attrs.permissions.is_some_and(|mode| mode & SET_ID != 0);
    if !has_set_id || attrs.owner.is_none() {
        return Ok(());
    }
    let owner = Attrs { owner: attrs.owner.take(), ..Attrs::default() };
    let owned = session.request(&Request::Fsetstat(handle.clone(), owner)).response().await?;
    if let Err(error) = error::done("set the owner", owned) {
        if !is_refusal(&error) {
            return Err(error);
        }
        attrs.permissions = attrs.permissions.map(|mode| mode & !SET_ID);
        inner.host.attributes.learn(&[Part::Owner]);
    }
    Ok(())
}

/// Handles the response to a request that set `attrs` on the entry that is now at the path `at`. If it was refused, all
/// are set by path if that has worked for an earlier file; otherwise, or if that is refused too, each attribute is
/// tried alone. Those still refused are reported as warnings and, except for the owner, remembered for the host.
pub(in crate::client) async fn settle(
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
        let response =
            inner.host.request_with_retries(&Request::Setstat(at.clone(), attrs.clone())).await?;
        match error::done("set attributes", response) {
            Err(error) if is_refusal(&error) => {}
            outcome => return outcome,
        }
    }
    let refused = try_each(inner, at, attrs).await?;
    let refused: Vec<Part> = refused.into_iter().map(|(part, _)| part).collect();
    let is_usual = attrs.permissions.is_none_or(|mode| mode & SPECIAL == 0);
    if refused.is_empty() && is_usual {
        inner.host.attributes.by_path.store(true, Ordering::Relaxed);
    }
    inner.host.attributes.learn(&refused);
    Ok(())
}

/// Like [`settle`], for an entry that haul has not created. Only "unsupported" holds for the host; a denial is an
/// error of this entry, except for its owner, which only root may change.
async fn settle_existing(
    inner: &Inner,
    outcome: Result<()>,
    at: &Bytes,
    attrs: &Attrs,
) -> Result<()> {
    match outcome {
        Err(error) if is_refusal(&error) => {}
        outcome => return outcome,
    }
    let (mut unsupported, mut denied) = (Vec::new(), Ok(()));
    for (part, error) in try_each(inner, at, attrs).await? {
        match part {
            _ if error.kind() == ErrorKind::Unsupported => unsupported.push(part),
            Part::Owner => inner.host.attributes.warn(OWNER_DENIED),
            Part::Mode | Part::Times => denied = denied.and(Err(error)),
        }
    }
    inner.host.attributes.learn(&unsupported);
    denied
}

/// Sends a request that sets attributes of a new file by its handle, if there are any and the server
/// supports that.
pub(in crate::client) fn request_set(
    inner: &Inner,
    session: &Session,
    handle: &Handle,
    attrs: &Attrs,
) -> Option<Pending> {
    let by_path = inner.host.attributes.by_path.load(Ordering::Relaxed);
    let is_needed = *attrs != Attrs::default() && !by_path;
    is_needed.then(|| session.request(&Request::Fsetstat(handle.clone(), attrs.clone())))
}

/// The outcome of [`request_set`], for [`settle`].
pub(in crate::client) async fn set_outcome(pending: Option<Pending>, attrs: &Attrs) -> Result<()> {
    match pending {
        Some(pending) => error::done("set attributes", pending.response().await?),
        None if *attrs == Attrs::default() => Ok(()),
        None => Err(Error::new(ErrorKind::Unsupported, "set attributes")),
    }
}

/// Tries each attribute alone. Returns those that are refused, with the errors.
async fn try_each(inner: &Inner, at: &Bytes, attrs: &Attrs) -> Result<Vec<(Part, Error)>> {
    let alone = parts(attrs);
    let tried = alone.iter().map(async |(part, alone)| {
        let refusal = try_alone(inner, at, alone).await?;
        Ok::<_, Error>(refusal.map(|error| (*part, error)))
    });
    let mut refused = Vec::new();
    for outcome in join_all(tried).await {
        refused.extend(outcome?);
    }
    Ok(refused)
}

/// Sets one attribute by path, or as much of it as the server allows. Returns the error if it is refused.
async fn try_alone(inner: &Inner, at: &Bytes, alone: &Attrs) -> Result<Option<Error>> {
    let usual = alone.permissions.filter(|mode| mode & SPECIAL != 0).map(|mode| mode & !SPECIAL);
    let usual = usual.map(|mode| Attrs { permissions: Some(mode), ..Attrs::default() });
    let mut refusal = None;
    for attrs in std::iter::once(alone).chain(&usual) {
        let response =
            inner.host.request_with_retries(&Request::Setstat(at.clone(), attrs.clone())).await?;
        match error::done("set attributes", response) {
            Ok(()) => {
                if attrs != alone {
                    let message = "the server does not set set-ID and sticky bits";
                    inner.host.attributes.warn(message);
                }
                return Ok(None);
            }
            Err(error) if is_refusal(&error) => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok(refusal)
}

/// Sets attributes of an existing entry. `made`: haul created it, so a refusal holds for all files.
pub(in crate::client) async fn set(
    inner: &Inner,
    at: &Bytes,
    mut attrs: Attrs,
    made: bool,
) -> Result<()> {
    inner.host.attributes.limit(&mut attrs);
    if attrs.permissions.is_some_and(|mode| mode & SET_ID != 0) && attrs.owner.is_some() {
        // A change of owner would clear these bits.
        let owner = Attrs { owner: attrs.owner.take(), ..Attrs::default() };
        if let Some(error) = try_alone(inner, at, &owner).await? {
            if made || error.kind() == ErrorKind::Unsupported {
                inner.host.attributes.learn(&[Part::Owner]);
            } else {
                inner.host.attributes.warn(OWNER_DENIED);
            }
            attrs.permissions = attrs.permissions.map(|mode| mode & !SET_ID);
        }
    }
    if attrs == Attrs::default() {
        return Ok(());
    }
    let response =
        inner.host.request_with_retries(&Request::Setstat(at.clone(), attrs.clone())).await?;
    let outcome = error::done("set attributes", response);
    match &outcome {
        _ if made => settle(inner, outcome, at, &attrs).await,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            settle_existing(inner, outcome, at, &attrs).await
        }
        // Without the right to change owners, the other attributes may still be set.
        Err(_) if attrs.owner.is_some() => {
            let owner = Attrs { owner: attrs.owner.take(), ..Attrs::default() };
            if attrs != Attrs::default() {
                let response =
                    inner.host.request_with_retries(&Request::Setstat(at.clone(), attrs)).await?;
                error::done("set attributes", response)?;
            }
            settle_existing(inner, outcome, at, &owner).await
        }
        _ => outcome,
    }
}

/// Sets the mode of the file at `at` by `lsetstat`, which follows no link: in a directory that others can write to, a
/// link may have taken the place of the file since it was looked up. Returns whether the server has set it: it may not
/// have this extension, and OpenSSH cannot use it where it finds no `/proc`.
pub(in crate::client) async fn set_mode_of_file(
    inner: &Inner,
    at: &Bytes,
    mode: u32,
) -> Result<bool> {
    if !inner.has(name::LSETSTAT) {
        return Ok(false);
    }
    let attrs = Attrs { permissions: Some(mode), ..Attrs::default() };
    let set = Request::Extended(Extended::Lsetstat(at.clone(), attrs));
    let response = inner.host.request_with_retries(&set).await?;
    Ok(error::done("set the mode", response).is_ok())
}

/// Sets attributes of a link itself, if the server supports it.
pub(in crate::client) async fn set_of_link(
    inner: &Inner,
    at: Bytes,
    mut attrs: Attrs,
) -> Result<()> {
    inner.host.attributes.limit(&mut attrs);
    if attrs == Attrs::default() || !inner.has(name::LSETSTAT) {
        return Ok(());
    }
    let response =
        inner.host.request_with_retries(&Request::Extended(Extended::Lsetstat(at, attrs))).await?;
    match error::done("set attributes", response) {
        // Attributes of links hardly matter.
        Err(error) if is_refusal(&error) => {
            inner.host.attributes.warn("the server does not set the attributes of symbolic links");
            Ok(())
        }
        outcome => outcome,
    }
}

/// A request that shows whether the times of `attrs` were set, unless that is known. To be sent
/// after them.
pub(in crate::client) fn times_request(
    inner: &Inner,
    handle: &Handle,
    attrs: &Attrs,
) -> Option<Request> {
    let unknown = !inner.host.attributes.seen.load(Ordering::Relaxed);
    (attrs.times.is_some() && unknown).then(|| Request::Fstat(handle.clone()))
}

/// Handles the response to [`times_request`]. If neither it nor an LSTAT of the path `at` has the times of
/// `attrs`, the server does not set times although it reports success.
pub(in crate::client) async fn check_times(
    inner: &Inner,
    seen: Result<Response>,
    at: &Bytes,
    attrs: &Attrs,
) {
    let Some((_, wanted)) = attrs.times else { return };
    let is_set = |response: &Result<Response>| match response {
        Ok(Response::Attrs(Attrs { times: Some((_, found)), .. })) => {
            Some(found.abs_diff(wanted) < STEP)
        }
        // No information.
        _ => None,
    };
    let mut stored = is_set(&seen);
    if stored == Some(false) {
        // Some servers execute this request before the earlier ones, and some report the time of
        // the last write while the file is open.
        stored = is_set(&inner.host.request_with_retries(&Request::Lstat(at.clone())).await);
    }
    match stored {
        Some(true) => inner.host.attributes.seen.store(true, Ordering::Relaxed),
        Some(false) if !inner.host.attributes.has_no_times() => {
            inner.host.attributes.learn(&[Part::Times]);
        }
        _ => {}
    }
}

/// Tries on a new file whether the server still refuses what an earlier run recorded as refused,
/// and removes the record if not. Runs in the background. `mode` is the mode of the file. Only the
/// next run uses the outcome, since this one may already have compared files by size.
pub(in crate::client) fn try_again(inner: &Inner, session: &Session, handle: &Handle, mode: u32) {
    let attributes = &inner.host.attributes;
    if !attributes.recalled.swap(false, Ordering::Relaxed) {
        return;
    }
    let known = [(Part::Mode, attributes.has_no_mode()), (Part::Times, attributes.has_no_times())];
    let known: Vec<_> = known.into_iter().filter_map(|(part, is)| is.then_some(part)).collect();
    attributes.learn(&known);
    // A time that the server would not set by itself; the next write changes it again.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = u32::try_from(now).unwrap_or(u32::MAX).saturating_sub(10);
    let attrs = |part: Part| match part {
        Part::Times => Attrs { times: Some((time, time)), ..Attrs::default() },
        Part::Mode | Part::Owner => Attrs { permissions: Some(mode), ..Attrs::default() },
    };
    let send = |part, known: bool| {
        known.then(|| session.request(&Request::Fsetstat(handle.clone(), attrs(part))))
    };
    let times = send(Part::Times, attributes.has_no_times());
    let mode = send(Part::Mode, attributes.has_no_mode());
    let look = session.request(&Request::Fstat(handle.clone()));
    let host = Arc::clone(&inner.host);
    inner.host.lanes.spawn(async move {
        let mut granted = true;
        for sent in [times, mode].into_iter().flatten() {
            granted &= matches!(sent.response().await.map(|it| error::done("try", it)), Ok(Ok(())));
        }
        let found = match look.response().await {
            Ok(Response::Attrs(attrs)) => attrs.times.map(|(_, modified)| modified),
            _ => None,
        };
        if granted && (found == Some(time) || !host.attributes.has_no_times()) {
            host.attributes.forget();
        }
    });
}
