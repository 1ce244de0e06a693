//! Questions of WebDAV (RFC 4918), and what their answers say.

use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath, Result};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::error;
use super::exchange::Exchange;
use super::request::Request;
use super::response::Response;
use crate::parse::{Limits, Multistatus, MultistatusError, Resource, Url};

/// How deep a question goes.
pub const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Where to (RFC 4918, 10.3).
pub const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Whether something may be replaced (RFC 4918, 10.6): `T` or `F`.
pub const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

/// The answer about one thing is not longer.
const ONE_MOST: usize = 1 << 20;

/// By name, because "all" is much more with some servers, and in it are names that nginx does not
/// escape. Without the ETag: rclone has to read a file for it, and ends the listing when that is being
/// written.
const PROPERTIES: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/></D:prop></D:propfind>";

/// How much may still be written (RFC 4331).
const QUOTA: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:quota-available-bytes/></D:prop></D:propfind>";

/// What was found, and where.
#[derive(Debug)]
pub struct Seen {
    /// What the server says of it.
    pub resource: Resource,
    /// Its URL, at the end of all redirects.
    pub url: Url,
}

/// `PROPFIND` of a thing alone ("0"), or with what is in it ("1").
pub fn propfind(url: Url, depth: &'static str, operation: &'static str) -> Request {
    propfind_of(PROPERTIES, url, depth, operation)
}

fn propfind_of(
    properties: &'static [u8],
    url: Url,
    depth: &'static str,
    operation: &'static str,
) -> Request {
    let mut request = Request::new(method("PROPFIND"), url, operation)
        .with(DEPTH, HeaderValue::from_static(depth))
        .with(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
    request.body.push(properties.into());
    request
}

/// A method that has no name in `http`. All that are used are made of letters.
pub fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).unwrap_or_default()
}

/// What is at a URL; `None` if nothing is.
///
/// # Errors
/// It cannot be known, or the server does not speak WebDAV.
pub async fn look(exchange: &Exchange, url: Url, operation: &'static str) -> Result<Option<Seen>> {
    seen(exchange, &propfind(url, "0", operation), operation).await
}

/// A directory with its quota; `None` if nothing is there.
///
/// # Errors
/// Those of [`look`].
pub async fn quota(exchange: &Exchange, url: Url) -> Result<Option<Seen>> {
    const OPERATION: &str = "read the quota";
    seen(exchange, &propfind_of(QUOTA, url, "0", OPERATION), OPERATION).await
}

async fn seen(
    exchange: &Exchange,
    request: &Request,
    operation: &'static str,
) -> Result<Option<Seen>> {
    let mut response = exchange.patiently(request).await?;
    if is_nothing(response.status) {
        drop(response);
        return Ok(None);
    }
    expect_multistatus(&response, operation)?;
    let body = response.whole(operation, ONE_MOST).await?;
    let resources = parse(&body).map_err(|error| malformed(&response.url, operation, error))?;
    // A list without anything in it is how some servers say that nothing is there.
    let Some(resource) = resources.into_iter().next() else { return Ok(None) };
    match failure(&resource) {
        Some(status) if is_nothing(status) => Ok(None),
        Some(status) => Err(error::of_status(status, operation, &response.url)),
        None => Ok(Some(Seen { resource, url: response.url.clone() })),
    }
}

/// The status of something in a list that says that it is not there, or nobody's business.
pub fn failure(resource: &Resource) -> Option<StatusCode> {
    resource.failure().and_then(|status| StatusCode::from_u16(status).ok())
}

/// Whether a status means that nothing is there. Apache says 400 of what would be below a file, others
/// 409 of what is in a directory that is missing.
fn is_nothing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 409 | 410)
}

/// That a response is a list of properties.
///
/// # Errors
/// It is something else.
pub fn expect_multistatus(response: &Response, operation: &'static str) -> Result<()> {
    match response.status {
        StatusCode::MULTI_STATUS => Ok(()),
        status if status.is_success() => Err(no_webdav(response, operation)),
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Err(no_webdav(response, operation))
        }
        status => Err(error::of_status(status, operation, &response.url)),
    }
}

fn no_webdav(response: &Response, operation: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, operation).at(&response.url).because(format!(
        "the server does not support WebDAV at this URL (PROPFIND returned {})",
        response.status
    ))
}

/// A response that is no multistatus.
pub fn malformed(url: &Url, operation: &'static str, error: MultistatusError) -> Error {
    Error::new(ErrorKind::Protocol, operation).at(url).because(error.to_string())
}

/// A whole multistatus.
///
/// # Errors
/// It is none.
pub fn parse(body: &[u8]) -> Result<Vec<Resource>, MultistatusError> {
    let mut parser = Multistatus::new(Limits::default());
    let resources = parser.push(body)?;
    parser.finish()?;
    Ok(resources)
}

/// What is said of something, as an entry. Without its ETag: servers give another one, or none, in
/// listings than with a file. `None` if it is a file of unknown length.
pub fn entry(path: RelPath, resource: &Resource) -> Option<Entry> {
    let mut entry = if resource.collection {
        Entry::new(path, EntryKind::Directory, 0)
    } else {
        Entry::new(path, EntryKind::File, resource.size?)
    };
    entry.modified = resource.modified;
    Some(entry)
}
