//! A host: its lanes, and what is asked of it.

use std::sync::Arc;

use haul_net::Prompter;
use haul_storage::LinkStatus;
use tokio::runtime::Handle;

use super::exchange::Exchange;
use super::options::HttpOptions;
use crate::parse::Origin;

/// A host that is spoken to over HTTP, as one user.
#[derive(Debug)]
pub struct HttpHost {
    origin: Origin,
    exchange: Arc<Exchange>,
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
        Arc::new(Self { origin, exchange })
    }

    /// How it is named.
    pub fn name(&self) -> String {
        self.origin.to_string()
    }

    /// Says how many lanes a transfer will want over a long path.
    pub fn expect(&self, lanes: usize) {
        self.exchange.expect(lanes);
    }

    /// What the link looks like.
    pub fn link(&self) -> LinkStatus {
        self.exchange.status(&self.origin)
    }

    /// Wishes for lanes.
    pub fn wish(&self, lanes: usize) {
        self.exchange.wish(lanes);
    }

    pub(super) const fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }
}
