//! A host: its lanes, and what is asked of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_net::Prompter;
use haul_storage::{LinkStatus, Result};
use http::{HeaderMap, Method};
use tokio::runtime::Handle;

use super::exchange::Exchange;
use super::options::HttpOptions;
use super::request::Request;
use crate::parse::{Cookie, Origin, Url};

/// A host that is spoken to over HTTP, as one user.
#[derive(Debug)]
pub struct HttpHost {
    origin: Origin,
    exchange: Arc<Exchange>,
    /// What the server said it can do, when it was looked what is at a URL.
    said: Mutex<Option<(Url, HeaderMap)>>,
}

impl HttpHost {
    /// Nothing is opened yet. Lanes run on `runtime`.
    pub fn new(
        origin: Origin,
        user: Option<String>,
        options: &HttpOptions,
        prompter: Arc<dyn Prompter>,
        runtime: Handle,
    ) -> Arc<Self> {
        let exchange = Exchange::new(origin.clone(), user, options, prompter, runtime);
        Arc::new(Self { origin, exchange, said: Mutex::default() })
    }

    /// How it is named.
    pub fn name(&self) -> String {
        self.origin.to_string()
    }

    /// Says how many lanes a transfer will want over a long path.
    pub fn expect(&self, lanes: usize) {
        self.exchange.transport().expect(lanes);
    }

    /// What the link looks like.
    pub fn link(&self) -> LinkStatus {
        self.exchange.transport().status(&self.origin)
    }

    /// Wishes for lanes.
    pub fn wish(&self, lanes: usize) {
        self.exchange.transport().wish(lanes);
    }

    /// The cookies of this host, and of those that it has redirected to.
    pub fn cookies(&self) -> Vec<Cookie> {
        self.exchange.jar().all()
    }

    pub(super) const fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Asks what can be done at `url` while something else is asked of it, for whoever opens a
    /// directory there next.
    pub(super) async fn prefetch(&self, url: &Url) {
        // Who needs to know it asks again, and sees why it cannot be known.
        if let Ok(said) = self.options(url).await {
            *self.said() = Some((url.clone(), said));
        }
    }

    /// What the server says of itself at `root`. A server that does not let itself be asked says
    /// nothing.
    ///
    /// # Errors
    /// It cannot be reached, or lets nobody in.
    pub(super) async fn what_it_says(&self, root: &Url) -> Result<HeaderMap> {
        let below = |url: &Url| url.origin == root.origin && url.path().starts_with(root.path());
        let said = self.said().take_if(|(url, _)| below(url));
        match said {
            Some((_, said)) => Ok(said),
            None => self.options(root).await,
        }
    }

    async fn options(&self, url: &Url) -> Result<HeaderMap> {
        let request = Request::new(Method::OPTIONS, url.with_path(url.path()), "open");
        let response = self.exchange.patiently(&request).await?;
        let headers =
            if response.status.is_success() { response.headers.clone() } else { <_>::default() };
        drop(response);
        Ok(headers)
    }

    fn said(&self) -> MutexGuard<'_, Option<(Url, HeaderMap)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
