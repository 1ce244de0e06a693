//! WebDAV requests (RFC 4918) and their responses.

use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath, Result};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::error;
use super::exchange::Exchange;
use super::request::Request;
use super::response::Response;
use crate::parse::{Limits, Multistatus, MultistatusError, Resource, Url};

/// Whether a request applies to a resource alone or also to its members (RFC 4918, 10.2).
pub const DEPTH: HeaderName = HeaderName::from_static("depth");

/// The target URL of COPY and MOVE (RFC 4918, 10.3).
pub const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Whether COPY and MOVE may replace an existing target (RFC 4918, 10.6): `T` or `F`.
pub const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

/// Longest response about a single resource, in bytes.
const MAX_SINGLE_BODY: usize = 1 << 20;

/// Requests the properties by name: `allprop` returns far more on some servers, and includes names that nginx does not
/// escape. Without the ETag: rclone has to read a file to compute it, and aborts the listing if the file is being
/// written.
const PROPERTIES: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/></D:prop></D:propfind>";

/// Requests the same properties of a single resource, and its entity tag.
const PROPERTIES_AND_TAG: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/><D:getetag/></D:prop></D:propfind>";

/// Requests the available space (RFC 4331).
const QUOTA: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:quota-available-bytes/></D:prop></D:propfind>";

/// An existing resource.
#[derive(Debug)]
pub struct Seen {
    /// Its properties, as the server reports them.
    pub resource: Resource,
    /// Its URL, after all redirects.
    pub url: Url,
}

/// A `PROPFIND` request for a resource alone (`depth` "0"), or with its members ("1").
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

/// A method for which the crate `http` has no constant. Every name used consists of letters, so this cannot fail.
pub fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).unwrap_or_default()
}

/// The resource at a URL; `None` if there is none.
///
/// # Errors
/// If the request fails, or the server does not support WebDAV.
pub async fn look(exchange: &Exchange, url: Url, operation: &'static str) -> Result<Option<Seen>> {
    seen(exchange, &propfind(url, "0", operation), operation).await
}

/// Like [`look`], with the entity tag.
///
/// # Errors
/// Those of [`look`].
pub async fn look_with_tag(
    exchange: &Exchange,
    url: Url,
    operation: &'static str,
) -> Result<Option<Seen>> {
    seen(exchange, &propfind_of(PROPERTIES_AND_TAG, url, "0", operation), operation).await
}

/// A directory with its quota; `None` if it does not exist.
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
    if means_not_found(response.status) {
        drop(response);
        return Ok(None);
    }
    expect_multistatus(&response, operation)?;
    let body = response.whole(operation, MAX_SINGLE_BODY).await?;
    let resources = parse(&body).map_err(|error| malformed(&response.url, operation, error))?;
    // Some servers return an empty multistatus if the resource does not exist.
    let Some(resource) = resources.into_iter().next() else { return Ok(None) };
    match failure(&resource) {
        Some(status) if means_not_found(status) => Ok(None),
        Some(status) => Err(error::of_status(status, operation, &response.url)),
        None => Ok(Some(Seen { resource, url: response.url.clone() })),
    }
}

/// The error status of a resource in a multistatus, such as 404 or 403; `None` if its properties were returned.
pub fn failure(resource: &Resource) -> Option<StatusCode> {
    resource.failure().and_then(|status| StatusCode::from_u16(status).ok())
}

/// Whether a status means that there is no such resource. For a path below a file Apache returns 400; if the parent
/// directory is missing, other servers return 409.
fn means_not_found(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 409 | 410)
}

/// Checks that a response is a multistatus (207).
///
/// # Errors
/// For any other status.
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

/// The error for a response with a malformed multistatus.
pub fn malformed(url: &Url, operation: &'static str, error: MultistatusError) -> Error {
    Error::new(ErrorKind::Protocol, operation).at(url).because(error.to_string())
}

/// Parses the body of a multistatus.
///
/// # Errors
/// If it is malformed.
pub fn parse(body: &[u8]) -> Result<Vec<Resource>, MultistatusError> {
    let mut parser = Multistatus::new(Limits::default());
    let resources = parser.push(body)?;
    parser.finish()?;
    Ok(resources)
}

/// Converts a resource to an entry; `None` if it is a file of unknown length. The ETag is not used: servers return a
/// different one in listings than with the file, or none.
pub fn entry(path: RelPath, resource: &Resource) -> Option<Entry> {
    let mut entry = if resource.collection {
        Entry::new(path, EntryKind::Directory, 0)
    } else {
        Entry::new(path, EntryKind::File, resource.size?)
    };
    entry.modified = resource.modified;
    Some(entry)
}
