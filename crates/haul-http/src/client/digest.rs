//! Requests the digest of a file from the server (RFC 9530).

use std::time::Duration;

use haul_storage::{Digest, DigestKind, Error, ErrorKind, RelPath, Result};
use http::header::ACCEPT_ENCODING;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::facts::Facts;
use super::inner::Inner;
use super::request::Request;
use crate::parse::repr_digest::WANT_SHA256;

const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");

/// How long a server that reports digests may take to hash a file: 180 GB at 100 MB/s.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

impl Inner {
    /// The digest of a file as the server reports it. Whether an unknown server reports digests is learnt from the
    /// first file.
    pub(super) async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        if kind != DigestKind::Sha256 {
            return Ok(None);
        }
        if self.quirks.digests {
            return self.request_digest(path, Some(PATIENCE)).await;
        }
        let mut first = None;
        let try_out = async {
            first = self.request_digest(path, None).await?;
            Ok::<_, Error>(first.is_some())
        };
        let reports = *self.learnt.reports_digests.get_or_try_init(|| try_out).await?;
        match first {
            None if reports => self.request_digest(path, Some(PATIENCE)).await,
            first => Ok(first),
        }
    }

    /// Uses a connection of its own, since no other request should wait until the server has hashed the file.
    async fn request_digest(
        &self,
        path: &RelPath,
        patience: Option<Duration>,
    ) -> Result<Option<Digest>> {
        let operation = "read the digest";
        let mut request = Request::new(Method::HEAD, self.url(path), operation)
            .with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .with(WANT_REPR_DIGEST, HeaderValue::from_static(WANT_SHA256));
        request.patience = patience;
        let response = self.exchange().patiently(&request).await?;
        if matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Err(Error::new(ErrorKind::NotFound, operation).at(self.location.display(path)));
        }
        // An index page, or a status that gives no digest.
        if response.status != StatusCode::OK || response.url.path().ends_with('/') {
            return Ok(None);
        }
        Ok(Facts::of(&response, operation)?.digest)
    }
}
