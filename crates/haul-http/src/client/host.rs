//! A host, with the lanes to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_net::Prompter;
use haul_storage::{LinkStatus, Result};
use http::{HeaderMap, Method, StatusCode};
use tokio::runtime::Handle;

use super::error;
use super::exchange::Exchange;
use super::following::may_pass;
use super::options::HttpOptions;
use super::request::Request;
use crate::parse::{Cookie, Origin, Url};

/// A host that is accessed over HTTP, as one user.
#[derive(Debug)]
pub struct HttpHost {
    origin: Origin,
    exchange: Arc<Exchange>,
    /// Header fields of the prefetched response to OPTIONS, with the URL of the request.
    prefetched: Mutex<Option<(Url, HeaderMap)>>,
}

impl HttpHost {
    /// Opens no lane yet. Lanes run on `runtime`.
    pub fn new(
        origin: Origin,
        user: Option<String>,
        options: &HttpOptions,
        prompter: Arc<dyn Prompter>,
        runtime: Handle,
    ) -> Arc<Self> {
        let exchange = Exchange::new(origin.clone(), user, options, prompter, runtime);
        Arc::new(Self { origin, exchange, prefetched: Mutex::default() })
    }

    /// The origin of the host as text.
    pub fn name(&self) -> String {
        self.origin.to_string()
    }

    /// Announces how many lanes a transfer will need over a long path.
    pub fn expect(&self, lanes: usize) {
        self.exchange.transport().expect(lanes);
    }

    /// The state of the link, as measured.
    pub fn link(&self) -> LinkStatus {
        self.exchange.transport().status(&self.origin)
    }

    /// Sets the number of lanes to open or keep.
    pub fn set_target(&self, lanes: usize) {
        self.exchange.transport().set_target(lanes);
    }

    /// The cookies of this host, and of those that it has redirected to.
    pub fn cookies(&self) -> Vec<Cookie> {
        self.exchange.jar().all()
    }

    pub(super) const fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Sends OPTIONS for `url` in advance, for a storage that may be opened at it or at a directory above it.
    pub(super) async fn prefetch(&self, url: &Url) {
        // Errors are ignored: the request is sent again when its response is needed, and that reports them.
        if let Ok(headers) = self.options(url).await {
            *self.prefetched() = Some((url.clone(), headers));
        }
    }

    /// The header fields of the response to OPTIONS, which show the server's capabilities. Uses the prefetched
    /// response if its URL is `root` or below; otherwise requests OPTIONS at `root`. Empty if the server refuses
    /// OPTIONS.
    ///
    /// # Errors
    /// Those of [`Exchange::patiently`], and if its last response reports a transient failure other than 500.
    pub(super) async fn options_headers(&self, root: &Url) -> Result<HeaderMap> {
        let below = |url: &Url| url.origin == root.origin && url.path().starts_with(root.path());
        let prefetched = self.prefetched().take_if(|(url, _)| below(url));
        match prefetched {
            Some((_, headers)) => Ok(headers),
            None => self.options(root).await,
        }
    }

    async fn options(&self, url: &Url) -> Result<HeaderMap> {
        let request = Request::new(Method::OPTIONS, url.with_path(url.path()), "open");
        let response = self.exchange.patiently(&request).await?;
        let status = response.status;
        // A refusal by a server that is busy now must not count for the whole run. Some servers respond 500 to
        // any method that they do not know.
        if may_pass(status) && status != StatusCode::INTERNAL_SERVER_ERROR {
            return Err(error::of_status(status, "open", &response.url));
        }
        let headers = if status.is_success() { response.headers.clone() } else { <_>::default() };
        drop(response);
        Ok(headers)
    }

    fn prefetched(&self) -> MutexGuard<'_, Option<(Url, HeaderMap)>> {
        self.prefetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
