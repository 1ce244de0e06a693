//! Handles a request: admission, checks before any change, and dispatch.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use dav_server::DavHandler;
use dav_server::body::BodyType;
use dav_server::davpath::{DavPath, ParseError};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use rustix::fs::FileType;

use super::body::Body;
use super::client::Client;
use super::described::Described;
use super::download;
use super::file_system::{Files, Intent};
use super::gate::Gate;
use super::instead::Instead;
use super::limits;
use super::names;
use super::paths::{is_within, trimmed};
use super::properties::Copied;
use super::propfind::propfind;
use super::proppatch::proppatch;
use super::received::{Lent, Received};
use super::refusal;
use super::share::Share;
use super::upload::Written;
use super::visitor::{Observer, RequestReport};
use super::xml;

const METHODS: &str =
    "OPTIONS, GET, HEAD, PUT, PATCH, DELETE, MKCOL, COPY, MOVE, PROPFIND, PROPPATCH, LOCK, UNLOCK";
const METHODS_THAT_READ: &str = "OPTIONS, GET, HEAD, PROPFIND";

/// Nextcloud's and ownCloud's header for the time of an uploaded file, in seconds since 1970.
const X_OC_MTIME: HeaderName = HeaderName::from_static("x-oc-mtime");

/// WebDAV's conditions, with tags and locks (RFC 4918, section 10.4).
const IF: HeaderName = HeaderName::from_static("if");

/// Handles all requests of a server.
pub(super) struct Handler {
    share: Arc<Share>,
    gate: Gate,
    observer: Observer,
    dav: DavHandler<Intent>,
}

impl Handler {
    pub(super) fn new(share: Arc<Share>, gate: Gate) -> Self {
        let dav = DavHandler::builder()
            .filesystem(Files::boxed(&share))
            .locksystem(Box::new(share.locks.clone()))
            .build_handler();
        Self { observer: gate.observer.clone(), share, gate, dav }
    }

    /// Responds to one request.
    pub(super) async fn respond(
        &self,
        client: &Client,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let received = Arc::new(AtomicU64::new(0));
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let report = RequestReport::new(
            self.observer.clone(),
            client.from,
            head.method.clone(),
            path,
            Arc::clone(&received),
        );
        let (body, lender) = Lent::new(Received::new(body, &head.headers, received));
        let mut response = match self.gate.admit(&head, client.from).await {
            Ok(principal) => {
                client.admitted.mark_authenticated();
                self.perform((client, principal), head, body).await
            }
            Err(refused) => {
                drop(body);
                refused
            }
        };
        if let Some(status) = lender.failure() {
            response = refusal::status(status);
        }
        // A refusal, or a method without a body, may have left some of the body unread.
        lender.drain();
        let mut set = |name: HeaderName, value: &'static str| {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        };
        set(header::SERVER, "haul");
        // The file name determines the media type; a browser must not guess that the file is a page.
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(header::REFERRER_POLICY, "no-referrer");
        set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        let status = response.status();
        response.map(|body| body.counted(report.with_status(status)))
    }

    async fn perform(
        &self,
        (client, principal): (&Client, &str),
        head: Parts,
        body: Lent,
    ) -> Response<Body> {
        let method = head.method.as_str();
        if method == "OPTIONS" {
            return self.options();
        }
        let path = match DavPath::new(head.uri.path()) {
            Ok(path) => path,
            Err(ParseError::ForbiddenPath) => return refusal::status(StatusCode::FORBIDDEN),
            Err(_) => return refusal::status(StatusCode::BAD_REQUEST),
        };
        match method {
            "GET" | "HEAD" => {
                return download::get(&self.share, client, &head, &path).await;
            }
            "PROPFIND" => {
                let Some(body) = body.xml().await else { return too_long() };
                return propfind(&self.share, &path, &head.headers, &body).await;
            }
            "PUT" | "PATCH" | "DELETE" | "MKCOL" | "COPY" | "MOVE" | "PROPPATCH" | "LOCK"
            | "UNLOCK" => {}
            _ => return self.no_such_method(),
        }
        if self.share.read_only {
            return refusal::text(StatusCode::FORBIDDEN, "this server is read-only\n");
        }
        let is_new_or_gone = matches!(method, "PUT" | "PATCH" | "DELETE" | "MKCOL" | "MOVE");
        if is_new_or_gone && self.share.jail.is_fixed(path.as_bytes()) {
            return refusal::text(
                StatusCode::FORBIDDEN,
                "entries at the top level cannot be changed\n",
            );
        }
        match method {
            "PROPPATCH" => {
                let Some(body) = body.xml().await else { return too_long() };
                proppatch(&self.share, principal, &path, &head.headers, &body).await
            }
            "PUT" | "PATCH" => self.store(principal, &path, head, body).await,
            _ => {
                let Some(body) = body.xml().await else { return too_long() };
                self.change(principal, &path, head, body).await
            }
        }
    }

    /// PUT and PATCH.
    async fn store(
        &self,
        principal: &str,
        path: &DavPath,
        head: Parts,
        body: Lent,
    ) -> Response<Body> {
        if path.is_collection() {
            return self.no_such_method();
        }
        let modified = head.headers.get(X_OC_MTIME).map(time);
        let modified = match modified {
            Some(None) => return refusal::status(StatusCode::BAD_REQUEST),
            Some(time) => time,
            None => None,
        };
        let is_new =
            head.headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == b"*");
        let only = match is_for_one_version(&head.headers) {
            true => self.tag(path).await,
            false => None,
        };
        let refuses = is_new || only.is_some();
        let written = Written { modified, only };
        let intent = Intent { written, ..Intent::default() };
        let request = Request::from_parts(head, body);
        let response = self.dav.handle_guarded(request, principal.to_owned(), intent).await;
        let mut response = changed_meanwhile(ours(response), refuses);
        if modified.is_some() && response.status().is_success() {
            response.headers_mut().insert(X_OC_MTIME, HeaderValue::from_static("accepted"));
        }
        response
    }

    /// The entity tag of a file before the conditions of a request are evaluated; `None` if there is no file. If it has
    /// changed when the file is to be replaced, the request fails.
    async fn tag(&self, path: &DavPath) -> Option<String> {
        let (share, path) = (Arc::clone(&self.share), path.as_bytes().to_vec());
        let stat = self.share.pool.run_short(move || share.jail.stat(&path, true)).await;
        Some(Described::new(&stat.ok()?).etag())
    }

    /// Like [`Self::tag`], without following a link; `None` also for anything but a regular file.
    async fn tag_of_name(&self, path: &DavPath) -> Option<String> {
        let (share, path) = (Arc::clone(&self.share), path.as_bytes().to_vec());
        let stat = self.share.pool.run_short(move || share.jail.stat(&path, false)).await.ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then(|| Described::new(&stat).etag())
    }

    /// Methods that change names or locks.
    async fn change(
        &self,
        principal: &str,
        path: &DavPath,
        mut head: Parts,
        mut body: Bytes,
    ) -> Response<Body> {
        let method = head.method.as_str().to_owned();
        let is_top = path.as_bytes() == b"/";
        if is_top && matches!(method.as_str(), "DELETE" | "MOVE" | "COPY") {
            // The served directory itself cannot be removed, moved or copied.
            return refusal::status(StatusCode::FORBIDDEN);
        }
        if method == "LOCK" && !body.is_empty() {
            let Ok(lock_info) = xml::parse(&body) else {
                return refusal::status(StatusCode::BAD_REQUEST);
            };
            // `dav-server` stores all namespaces in scope with each element; rewriting the document
            // keeps them few.
            let document = xml::document(&lock_info);
            if document.len() > limits::LOCK_REQUEST {
                return too_long();
            }
            body = document.into();
        }
        let mut intent = Intent::default();
        let mut target = None;
        let mut removed = Vec::new();
        if matches!(method.as_str(), "DELETE" | "MOVE") {
            let path = path.as_bytes().to_vec();
            removed.push((self.share.locks.around(&path), path));
        }
        if method == "DELETE" && is_for_one_version(&head.headers) {
            intent.only = self.tag_of_name(path).await;
        }
        if matches!(method.as_str(), "COPY" | "MOVE") {
            match self.target(path, &head).await {
                Ok(Target { path: to, value, exists, only, replaces, copied }) => {
                    head.headers.insert("destination", value);
                    if exists && !(method == "COPY" && copied == Copied::Onto) {
                        let locks = self.share.locks.around(to.as_bytes());
                        if method == "COPY" {
                            match Instead::of(&self.share, to.as_bytes(), locks.clone()) {
                                Ok(instead) => intent.instead = Some(Arc::new(instead)),
                                Err(errno) => return refusal::status(refusal::of(errno)),
                            }
                        }
                        removed.push((locks, to.as_bytes().to_vec()));
                    }
                    (intent.only, intent.replaces) = (only, replaces);
                    intent.aside = method == "MOVE" && !replaces;
                    intent.copies = (method == "COPY").then(|| path.as_bytes().into());
                    intent.keeps =
                        head.headers.get("overwrite").is_some_and(|value| value.as_bytes() == b"F");
                    target = Some((to, copied));
                }
                Err(status) => return refusal::status(status),
            }
        }
        let request = Request::from_parts(head, Full::new(body));
        let (refuses, instead) = (intent.keeps || intent.only.is_some(), intent.instead.clone());
        let response = self.dav.handle_guarded(request, principal.to_owned(), intent).await;
        let response = changed_meanwhile(ours(response), refuses);
        // A 207 means that a part of the request failed; the properties then stay as they are.
        if matches!(response.status(), StatusCode::CREATED | StatusCode::NO_CONTENT) {
            if let Some(instead) = instead
                && let Err(status) = instead.name().await
            {
                return refusal::status(status);
            }
            let Share { properties, locks, .. } = &*self.share;
            removed.iter().for_each(|(before, path)| locks.removed(path, before));
            match (method.as_str(), target) {
                ("DELETE", _) => properties.removed(path.as_bytes()),
                ("MOVE", Some((to, _))) => properties.moved(path.as_bytes(), to.as_bytes()),
                ("COPY", Some((to, copied))) => {
                    properties.copied(path.as_bytes(), to.as_bytes(), copied);
                }
                _ => {}
            }
        }
        response
    }

    /// The destination of a COPY or MOVE. It is refused if it is the source or a parent of it, since replacing it
    /// would remove the source; and if it is inside the source, unless only the directory itself is copied
    /// (`Depth: 0`).
    async fn target(&self, path: &DavPath, head: &Parts) -> Result<Target, StatusCode> {
        let authority = names::authority(head).map_err(|foreign| foreign.0)?;
        let value = names::destination(&head.headers, authority)?;
        let to = DavPath::new(value).map_err(|_| StatusCode::BAD_REQUEST)?;
        let value = HeaderValue::from_str(value).map_err(|_| StatusCode::BAD_REQUEST)?;
        if to.as_bytes() == b"/" || self.share.jail.is_fixed(to.as_bytes()) {
            return Err(StatusCode::FORBIDDEN);
        }
        let is_shallow = head.headers.get("depth").is_some_and(|depth| depth.as_bytes() == b"0");
        let (from, into) = (path.as_bytes().to_vec(), to.as_bytes().to_vec());
        let share = Arc::clone(&self.share);
        let is_pinned = head.method == "MOVE" && may_be_for_the_target(&head.headers);
        let looked = self.share.pool.run_short(move || {
            let canonical = |path: &[u8]| share.jail.canonical(path);
            if let (Ok(from), Ok(into)) = (canonical(&from), canonical(&into)) {
                let is_inside = is_within(&into, &from) && !(is_shallow && into != from);
                if is_inside || is_within(&from, &into) {
                    return Err(StatusCode::FORBIDDEN);
                }
            }
            let stat = |path: &[u8], follow| share.jail.stat(trimmed(path), follow).ok();
            let kind =
                |path: &[u8], follow| Some(FileType::from_raw_mode(stat(path, follow)?.st_mode));
            let is_file = |kind| kind != FileType::Directory;
            let target = stat(&into, false);
            let only = target.as_ref().filter(|_| is_pinned);
            let only = only.map(|stat| Described::new(stat).etag());
            let target = target.map(|stat| FileType::from_raw_mode(stat.st_mode));
            let source = kind(&from, true);
            let exists = target.is_some();
            let replaces = source.is_some_and(is_file) && target.is_some_and(is_file);
            // A copy of a directory without its content replaces only a regular file; anything else stays.
            let leaves = || {
                let is_alone = exists && source == Some(FileType::Directory);
                is_alone && kind(&into, true) != Some(FileType::RegularFile)
            };
            let copied = match is_shallow {
                false => Copied::Tree,
                true if leaves() => Copied::Onto,
                true => Copied::Alone,
            };
            Ok((exists, only, replaces, copied))
        });
        let (exists, only, replaces, copied) = looked.await?;
        Ok(Target { path: to, value, exists, only, replaces, copied })
    }

    fn options(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let mut set = |name: &'static str, value: &'static str| {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        };
        if self.share.read_only {
            set("allow", METHODS_THAT_READ);
            set("dav", "1, 3");
        } else {
            set("allow", METHODS);
            set("dav", "1, 2, 3, sabredav-partialupdate");
        }
        set("accept-ranges", "bytes");
        // Without it Windows assumes a protocol of its own.
        set("ms-author-via", "DAV");
        response
    }

    fn no_such_method(&self) -> Response<Body> {
        let mut response = refusal::status(StatusCode::METHOD_NOT_ALLOWED);
        let methods = if self.share.read_only { METHODS_THAT_READ } else { METHODS };
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
        response
    }
}

/// Whether a request applies only to a certain version of an existing file.
fn is_for_one_version(headers: &HeaderMap) -> bool {
    let has = |name, what: fn(&u8) -> bool| {
        headers.get_all(name).iter().any(|value| value.as_bytes().iter().any(what))
    };
    headers.contains_key(header::IF_UNMODIFIED_SINCE)
        || has(header::IF_MATCH, |byte| *byte == b'"')
        // A tag is in brackets, a lock token is not (RFC 4918, section 10.4.2).
        || has(IF, |byte| *byte == b'[')
}

/// Whether a condition of a MOVE may be about the version at its destination: tagged lists name the resources that they
/// are about (RFC 4918, section 10.4.2).
fn may_be_for_the_target(headers: &HeaderMap) -> bool {
    headers.get_all(IF).iter().any(|value| {
        let value = value.as_bytes().trim_ascii_start();
        value.starts_with(b"<") && value.contains(&b'[')
    })
}

/// The destination of a COPY or MOVE.
struct Target {
    path: DavPath,
    /// The path for the `Destination` header that `dav-server` gets.
    value: HeaderValue,
    /// The destination exists.
    exists: bool,
    /// Its entity tag, if a MOVE may replace only this version.
    only: Option<String>,
    /// A file replaces a file.
    replaces: bool,
    /// What a COPY copies, and replaces.
    copied: Copied,
}

fn too_long() -> Response<Body> {
    refusal::status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// Reports 412 if the file was created or replaced after `dav-server` had checked, and must not be replaced.
fn changed_meanwhile(response: Response<Body>, refuses: bool) -> Response<Body> {
    match refuses && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        true => refusal::status(StatusCode::PRECONDITION_FAILED),
        false => response,
    }
}

/// Converts the response of `dav-server`.
fn ours(response: Response<dav_server::body::Body>) -> Response<Body> {
    response.map(|body| match body.inner {
        BodyType::Empty | BodyType::Bytes(None) => Body::empty(),
        BodyType::Bytes(Some(bytes)) => Body::text(bytes),
        BodyType::AsyncStream(pieces) => Body::stream(pieces),
    })
}

/// Parses seconds since 1970, with or without a fraction.
fn time(value: &HeaderValue) -> Option<SystemTime> {
    let text = value.to_str().ok()?.trim();
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    // Times before 1970 become 1970; those beyond the system's range are invalid.
    let is_before = seconds.starts_with('-');
    let seconds = u64::try_from(seconds.parse::<i64>().ok()?.max(0)).ok()?;
    let since = if is_before { Duration::ZERO } else { Duration::new(seconds, nanoseconds) };
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_upload_is_in_seconds() {
        let at = |text: &str| {
            let time = time(&text.parse().unwrap())?;
            Some(time.duration_since(SystemTime::UNIX_EPOCH).unwrap())
        };
        assert_eq!(at("1700000000"), Some(Duration::from_secs(1_700_000_000)));
        assert_eq!(at("1.25"), Some(Duration::from_millis(1250)));
        assert_eq!(at("1.1234567899"), Some(Duration::new(1, 123_456_789)));
        for early in ["-5", "-5.5", "-0.5"] {
            assert_eq!(at(early), Some(Duration::ZERO), "{early}");
        }
        for nonsense in ["", "x", "1.x", "1e3", "99999999999999999999"] {
            assert_eq!(at(nonsense), None, "{nonsense}");
        }
    }
}
