//! GET and HEAD.

use std::fs::File;
use std::sync::Arc;

use dav_server::davpath::DavPath;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use rustix::fs::{Advice, FileType, OFlags, fadvise, fstat};
use rustix::io::Errno;

use super::body::Body;
use super::client::Client;
use super::conditions::{self, Verdict};
use super::dates;
use super::described::Described;
use super::digest;
use super::file_body::FileBody;
use super::media_type;
use super::page;
use super::refusal;
use super::share::Share;

/// What exists at a path.
enum Found {
    File(File, Described),
    Directory,
}

/// Responds to a GET or HEAD.
pub(super) async fn get(
    share: &Arc<Share>,
    client: &Client,
    Parts { method, headers, .. }: &Parts,
    path: &DavPath,
) -> Response<Body> {
    let name = path.as_bytes().to_vec();
    let inside = Arc::clone(share);
    match share.pool.run_short(move || find(&inside, &name)).await {
        Ok(Found::File(file, described)) => {
            let mut response = head(path, &described, (method, headers));
            let is_whole = response.0.status() == StatusCode::OK;
            if method == Method::HEAD && is_whole && digest::is_wanted(headers) {
                let headers = response.0.headers_mut();
                digest::add(share, client, (file, described), headers).await;
                return send(response, method, |_| None);
            }
            let body = |(offset, length)| {
                if length == described.size {
                    // Makes the kernel read further ahead.
                    let _ = fadvise(&file, 0, None, Advice::Sequential);
                }
                Some(FileBody::new(file, (offset, length), share, &client.ahead))
            };
            send(response, method, body)
        }
        Ok(Found::Directory) if !path.is_collection() => moved(path),
        Ok(Found::Directory) => page::show(share, method, path).await,
        Err(errno) => refusal::status(refusal::of(errno)),
    }
}

/// Opens a file. Checks the type first, so that no device or pipe is opened.
fn find(share: &Share, path: &[u8]) -> Result<Found, Errno> {
    match FileType::from_raw_mode(share.jail.stat(path, true)?.st_mode) {
        FileType::Directory => return Ok(Found::Directory),
        FileType::RegularFile => {}
        _ => return Err(Errno::ACCESS),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = share.jail.resolve(path, flags)?;
    let described = Described::new(&fstat(&file)?);
    match described.kind {
        FileType::RegularFile => Ok(Found::File(File::from(file), described)),
        // It was replaced in the meantime.
        _ => Err(Errno::ACCESS),
    }
}

/// The head of the response, and the range of bytes to send.
fn head(
    path: &DavPath,
    file: &Described,
    (method, headers): (&Method, &HeaderMap),
) -> (Response<()>, u64, u64) {
    let mut response = Response::new(());
    let (status, offset, length) = match conditions::judge(method, headers, file) {
        Verdict::Whole => (StatusCode::OK, 0, file.size),
        Verdict::Part { offset, length } => (StatusCode::PARTIAL_CONTENT, offset, length),
        Verdict::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
        Verdict::Failed => (StatusCode::PRECONDITION_FAILED, 0, 0),
        Verdict::NoSuchRange => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    *response.status_mut() = status;
    let kind = media_type::of(path.file_name_bytes());
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::ETAG, &file.etag());
    set(header::LAST_MODIFIED, &dates::http(file.modified));
    set(header::ACCEPT_RANGES, "bytes");
    // A cached copy may be used only after revalidation.
    set(header::CACHE_CONTROL, "no-cache");
    match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
            set(header::CONTENT_TYPE, kind);
            if media_type::is_active(kind) {
                // A user who can store a page here must not be able to act as the users who view it.
                set(header::CONTENT_SECURITY_POLICY, "sandbox");
            }
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            set(header::CONTENT_RANGE, &format!("bytes */{}", file.size));
        }
        _ => {}
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let last = offset + length - 1;
        set(header::CONTENT_RANGE, &format!("bytes {offset}-{last}/{}", file.size));
    }
    (response, offset, length)
}

fn send(
    (response, offset, length): (Response<()>, u64, u64),
    method: &Method,
    body: impl FnOnce((u64, u64)) -> Option<FileBody>,
) -> Response<Body> {
    let (mut head, ()) = response.into_parts();
    if head.status == StatusCode::NOT_MODIFIED {
        return Response::from_parts(head, Body::empty());
    }
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if method == Method::HEAD || length == 0 {
        return Response::from_parts(head, Body::empty());
    }
    let body = body((offset, length)).map_or_else(Body::empty, Body::file);
    Response::from_parts(head, body)
}

/// Redirects a directory to its URL with a slash, without which relative links on its page would lead
/// elsewhere.
fn moved(path: &DavPath) -> Response<Body> {
    let mut response = refusal::status(StatusCode::MOVED_PERMANENTLY);
    let location = format!("{}/", path.as_url_string());
    // `//host/` would be another server, but a path begins with a single slash.
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
