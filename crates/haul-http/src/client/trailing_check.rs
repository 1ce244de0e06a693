//! Checks whether a file has changed while it was read, by a HEAD behind the last part on each lane.
//!
//! A server responds to the requests on a connection in order. So a response behind the last part on a lane is not
//! older than the bytes that were read there, and costs no RTT at the end. If a lane does not deliver it in time (its
//! packets were lost, and TCP backs off), the caller sends a request of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::Result;
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};
use tokio::time::timeout;

use super::exchange::Exchange;
use super::facts::Facts;
use super::pipe::Pipe;
use super::request::Request;
use super::response::Pending;
use crate::parse::Url;

/// The pending HEAD requests, once the last part of a file has been requested.
#[derive(Debug, Default)]
pub struct TrailingCheck {
    pending: Mutex<Option<Vec<Pending>>>,
}

impl TrailingCheck {
    /// A part was requested on a lane. With the last part of the file, sends a HEAD on all lanes; from then on, sends
    /// one behind each further part.
    pub async fn on_part_requested(
        &self,
        exchange: &Exchange,
        url: &Url,
        lane: &Pipe,
        is_last: bool,
    ) -> Result<()> {
        let begun = self.lock().is_some();
        if !is_last && !begun {
            return Ok(());
        }
        let on = if begun { Some(lane) } else { None };
        let sent = exchange.behind(&head_request(url), on).await?;
        self.lock().get_or_insert_default().extend(sent);
        Ok(())
    }

    /// The properties of the file in the responses; `None` if no HEAD was sent, one failed, or a response does not
    /// arrive within `patience`.
    pub async fn facts(&self, patience: Duration) -> Option<Vec<Facts>> {
        let pending = self.lock().take().filter(|pending| !pending.is_empty())?;
        timeout(patience, responses(pending)).await.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Pending>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn responses(pending: Vec<Pending>) -> Option<Vec<Facts>> {
    let mut all = Vec::with_capacity(pending.len());
    for response in pending {
        let head = response.head().await.ok()?;
        if !head.status.is_success() {
            return None;
        }
        all.push(Facts::of(&head, "access").ok()?);
    }
    Some(all)
}

/// A HEAD request for the properties of a file.
pub fn head_request(url: &Url) -> Request {
    let request = Request::new(Method::HEAD, url.clone(), "access");
    request.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}
