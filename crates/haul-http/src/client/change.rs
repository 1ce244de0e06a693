//! Changes on the server: makes directories, renames, copies, removes, sets times.
//!
//! Servers return different statuses for the same failure (a file in the way of MKCOL is 405, 400 or
//! 409), and some do more than requested: rclone replaces a directory by a file, nginx creates missing
//! parents. So haul stats the target before a request that could do harm, and after a failure to find
//! its reason.

use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::try_join;
use haul_storage::{Entry, Error, ErrorKind, Metadata, RelPath, Result, Retry, Timestamp};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::condition::Condition;
use super::dav::{self, method};
use super::error;
use super::inner::{Inner, ServerKind};
use super::quirks::{STORED_TIMES, Times};
use super::request::Request;
use super::response::Response;
use crate::parse::href::{Base, resolve_path};
use crate::parse::{Limits, Multistatus, Target, Url};

/// Longest response that describes a failure, in bytes.
const MAX_FAILURE_BODY: usize = 1 << 20;

impl Inner {
    pub(super) async fn make_dir(&self, path: &RelPath) -> Result<()> {
        self.writable("create directory", path)?;
        let at = |kind| Error::new(kind, "create directory").at(self.location.display(path));
        if path.is_root() {
            return Err(at(ErrorKind::AlreadyExists));
        }
        let existing = match self.quirks.mkcol_detects_existing {
            true => None,
            false => self.look_by_properties(path, "create directory").await?,
        };
        if existing.is_some() {
            return Err(at(ErrorKind::AlreadyExists));
        }
        let request = Request::new(method("MKCOL"), self.directory_url(path), "create directory");
        match self.send_change(&request).await {
            Ok(()) => {
                self.learnt.directories.learn(path.clone());
                Ok(())
            }
            Err(error) => {
                let error = self.why_not(error, path).await;
                match error.kind() {
                    ErrorKind::IsADirectory => Err(at(ErrorKind::AlreadyExists)),
                    _ => Err(error),
                }
            }
        }
    }

    /// Removes a file or an empty directory. Checks first that it is empty: DELETE removes a directory with
    /// everything in it.
    pub(super) async fn remove(&self, path: &RelPath) -> Result<()> {
        self.writable("remove", path)?;
        let at = |kind| Error::new(kind, "remove").at(self.location.display(path));
        let url = match self.learnt.directories.has(path) {
            true => self.directory_url(path),
            false => self.url(path),
        };
        let url = match self.inspect(url).await? {
            Inside::Nothing => return Err(at(ErrorKind::NotFound)),
            Inside::Something => return Err(at(ErrorKind::NotEmpty)),
            Inside::IsFile => self.url(path),
            Inside::IsEmpty => self.directory_url(path),
        };
        self.learnt.directories.forget(path);
        match self.send_change(&Request::new(http::Method::DELETE, url, "remove")).await {
            Err(error) => Err(error.at(self.location.display(path))),
            Ok(()) => Ok(()),
        }
    }

    pub(super) async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.writable("rename", from)?;
        if !self.capabilities.rename {
            return Err(self.unsupported("rename", from));
        }
        let at = |kind, path| Error::new(kind, "rename").at(self.location.display(path));
        if from == to {
            return self.look(from).await.map(drop);
        }
        if from.is_root() || to.starts_with(from) || from.starts_with(to) {
            return Err(at(ErrorKind::InvalidInput, from));
        }
        self.check_parent(to, "rename").await?;
        let looks = try_join(
            self.look_by_properties(from, "rename"),
            self.look_by_properties(to, "rename"),
        );
        let (source, existing) = looks.await?;
        let Some(source) = source else { return Err(at(ErrorKind::NotFound, from)) };
        if existing.is_some() && source.is_dir() {
            return Err(at(ErrorKind::AlreadyExists, to));
        }
        self.move_to(&source, to, existing, true, None).await
    }

    /// Renames `source` to `to`. `existing` is the entry found at `to`, if any, and `condition` is about its version.
    pub(super) async fn move_to(
        &self,
        source: &Entry,
        to: &RelPath,
        mut existing: Option<Entry>,
        replace: bool,
        mut condition: Option<&Condition>,
    ) -> Result<()> {
        let from = &source.path;
        let at = |kind| Error::new(kind, "rename").at(self.location.display(to));
        // The target may change between the stat and the move, or the lane may end. Three times in a row is
        // not chance.
        let mut failure = at(ErrorKind::AlreadyExists);
        let mut was_lost = false;
        for _ in 0..3 {
            let overwrite = match &existing {
                Some(entry) if entry.is_dir() => return Err(at(ErrorKind::IsADirectory)),
                Some(_) if !replace => return Err(at(ErrorKind::AlreadyExists)),
                Some(_) => "T",
                None => "F",
            };
            let error = match self.send_move_or_copy("MOVE", source, to, overwrite, condition).await
            {
                Ok(()) => {
                    self.learnt.directories.forget(from);
                    self.learnt.directories.forget(to);
                    return Ok(());
                }
                Err(error) if self.learnt.moving.is_refused(to) => return Err(error),
                Err(error) => error,
            };
            let lost = error.kind() == ErrorKind::Unreachable;
            was_lost |= lost;
            existing = self.look_by_properties(to, "rename").await?;
            let still = match was_lost {
                true => self.look_by_properties(from, "rename").await.ok(),
                false => None,
            };
            let same = |entry: &Entry| entry.kind == source.kind && entry.size == source.size;
            // 412: the condition is not met.
            let unmet = condition.filter(|_| error.kind() == ErrorKind::AlreadyExists);
            match (&existing, still, unmet) {
                // The response was lost, but the move succeeded.
                (Some(entry), Some(None), _) if same(entry) => return Ok(()),
                (_, _, Some(unmet)) => {
                    self.still_has(to, unmet).await?;
                    condition = None;
                }
                (Some(_), _, None) if overwrite == "F" => {}
                // The request was lost.
                (_, Some(Some(entry)), None) if lost && same(&entry) => {
                    failure = error.at(self.location.display(to));
                }
                _ => return Err(error.at(self.location.display(to))),
            }
        }
        Err(failure)
    }

    pub(super) async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.writable("copy", from)?;
        if !self.capabilities.server_copy {
            return Err(self.unsupported("copy", from));
        }
        let at = |kind, path| Error::new(kind, "copy").at(self.location.display(path));
        self.check_parent(to, "copy").await?;
        let Some(source) = self.look_by_properties(from, "copy").await? else {
            return Err(at(ErrorKind::NotFound, from));
        };
        if source.is_dir() {
            return Err(at(ErrorKind::IsADirectory, from));
        }
        match self.send_move_or_copy("COPY", &source, to, "F", None).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = self.why_not(error, to).await;
                match error.kind() {
                    ErrorKind::IsADirectory => Err(at(ErrorKind::AlreadyExists, to)),
                    _ => Err(error),
                }
            }
        }
    }

    pub(super) async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        match (metadata.modified, self.quirks.times) {
            (Some(time), Some(_)) => self.set_time(path, time).await,
            _ if path.is_root() => Ok(()),
            _ => self.look(path).await.map(drop),
        }
    }

    /// Sets a modification time, if the server supports it.
    pub(super) async fn set_time(&self, path: &RelPath, time: Timestamp) -> Result<()> {
        let operation = "set the time";
        let Some(times) = self.quirks.times else { return Ok(()) };
        let mut request = Request::new(method("PROPPATCH"), self.url(path), operation)
            .with(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
        request.body.push(time_patch(times, time).into());
        let mut response = self.exchange().patiently(&request).await?;
        if response.status != StatusCode::MULTI_STATUS {
            let error = error::of_status(response.status, operation, &response.url);
            let done = response.status.is_success();
            drop(response);
            return if done { Ok(()) } else { Err(error) };
        }
        match failed_part(&mut response, operation).await? {
            None => Ok(()),
            Some(status) => Err(error::of_status(status, operation, &response.url)),
        }
    }

    /// Finds out why `path` could not be created.
    pub(super) async fn why_not(&self, error: Error, path: &RelPath) -> Error {
        let plain = [
            ErrorKind::Unreachable,
            ErrorKind::Busy,
            ErrorKind::NoSpace,
            ErrorKind::Unauthenticated,
            ErrorKind::Interrupted,
        ];
        if plain.contains(&error.kind()) && error.retry() != Retry::Never {
            return error.at(self.location.display(path));
        }
        let kind = match self.look_by_properties(path, error.operation()).await {
            Ok(Some(entry)) if entry.is_dir() => ErrorKind::IsADirectory,
            Ok(Some(_)) => ErrorKind::AlreadyExists,
            Ok(None) => {
                if let Some(parent) = path.parent() {
                    self.learnt.directories.forget(&parent);
                }
                match self.check_parent(path, error.operation()).await {
                    Err(missing) if missing.kind() != ErrorKind::Unreachable => return missing,
                    _ => return error.at(self.location.display(path)),
                }
            }
            Err(_) => return error.at(self.location.display(path)),
        };
        Error::new(kind, error.operation()).at(self.location.display(path)).because(error.cause())
    }

    /// Sends a request that changes something; fails unless all of it was done.
    pub(super) async fn send_change(&self, request: &Request) -> Result<()> {
        let (status, url) = self.status_of_change(request).await?;
        let refused = || error::of_status(status, request.operation, &url);
        if status.is_success() { Ok(()) } else { Err(refused()) }
    }

    /// Sends a request that changes something. Returns its status (of a multistatus, the first failure, or 500 if it
    /// names none), and the URL that responded.
    pub(super) async fn status_of_change(&self, request: &Request) -> Result<(StatusCode, Url)> {
        let mut response = self.exchange().once(request).await?;
        let status = response.status;
        if status == StatusCode::MULTI_STATUS {
            // A multistatus means that some part of it was not done.
            let failed = failed_part(&mut response, request.operation).await?;
            return Ok((failed.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), response.url.clone()));
        }
        let url = response.url.clone();
        drop(response);
        Ok((status, url))
    }

    /// Fails unless this storage can be written to.
    pub(super) fn writable(&self, operation: &'static str, path: &RelPath) -> Result<()> {
        match self.server_kind {
            ServerKind::Dav => Ok(()),
            ServerKind::Web => Err(self.unsupported(operation, path)),
        }
    }

    async fn inspect(&self, url: Url) -> Result<Inside> {
        let request = dav::propfind(url, "1", "remove");
        let mut response = self.exchange().patiently(&request).await?;
        if matches!(response.status.as_u16(), 400 | 404 | 410) {
            drop(response);
            return Ok(Inside::Nothing);
        }
        dav::expect_multistatus(&response, "remove")?;
        let base = Base::from_url(&response.url).map_err(|error| {
            Error::new(ErrorKind::Protocol, "remove").at(&response.url).because(error.to_string())
        })?;
        let mut parser = Multistatus::new(Limits::default());
        let mut itself = None;
        while let Some(bytes) = response.next("remove").await? {
            let resources = parser.push(&bytes);
            let resources = resources.map_err(|e| dav::malformed(&response.url, "remove", e))?;
            for resource in resources {
                if resolve_path(&base, resource.href.as_bytes()) != Ok(Target::This) {
                    // Any other resource means that the directory is not empty.
                    drop(response);
                    return Ok(Inside::Something);
                }
                itself = Some(resource);
            }
        }
        parser.finish().map_err(|error| dav::malformed(&response.url, "remove", error))?;
        Ok(match itself {
            Some(resource) if matches!(resource.failure(), Some(404 | 410)) => Inside::Nothing,
            Some(resource) if resource.collection => Inside::IsEmpty,
            Some(_) => Inside::IsFile,
            None => Inside::Nothing,
        })
    }
}

/// What is at a path, as needed for removing it.
enum Inside {
    Nothing,
    IsFile,
    IsEmpty,
    Something,
}

/// The first status in a multistatus that is not a success.
async fn failed_part(
    response: &mut Response,
    operation: &'static str,
) -> Result<Option<StatusCode>> {
    let body = response.whole(operation, MAX_FAILURE_BODY).await?;
    let resources = dav::parse(&body);
    let resources = resources.map_err(|error| dav::malformed(&response.url, operation, error))?;
    let statuses = resources.iter().flat_map(|found| [found.status, found.property_status]);
    let mut statuses = statuses.flatten().filter_map(|status| StatusCode::from_u16(status).ok());
    Ok(statuses.find(|status| !status.is_success()))
}

fn time_patch(times: Times, time: Timestamp) -> String {
    let seconds = STORED_TIMES.stored(time).seconds;
    let (namespace, property) = match times {
        Times::OwnCloud => ("DAV:", format!("<t:lastmodified>{seconds}</t:lastmodified>")),
        Times::Haul => {
            let date = UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs());
            let date = httpdate::fmt_http_date(date);
            let name = "t:Win32LastModifiedTime";
            ("urn:schemas-microsoft-com:", format!("<{name}>{date}</{name}>"))
        }
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><D:propertyupdate xmlns:D=\"DAV:\" \
         xmlns:t=\"{namespace}\"><D:set><D:prop>{property}</D:prop></D:set></D:propertyupdate>"
    )
}
