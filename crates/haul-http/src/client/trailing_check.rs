//! Whether a file is still the one that was read: a HEAD behind the last part on each lane.
//!
//! A server answers requests on a connection in order. A response behind the last part on a lane is
//! therefore not older than the bytes that were read there, and costs no round trip at the end. Where a
//! lane does not deliver it in time (its packets were lost, and TCP backs off), the caller sends a request
//! of its own.

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

/// The questions, once the last part of a file has been asked for.
#[derive(Debug, Default)]
pub struct TrailingCheck {
    asked: Mutex<Option<Vec<Pending>>>,
}

impl TrailingCheck {
    /// A part was asked for on a lane. With the last part of the file the question is asked on all
    /// lanes, and from then on behind every part.
    pub async fn part_asked(
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
        let questions = exchange.behind(&question(url), on).await?;
        self.lock().get_or_insert_default().extend(questions);
        Ok(())
    }

    /// What the responses report of the file; `None` if one of them reports too little, or does not
    /// arrive within `patience`.
    pub async fn facts(&self, patience: Duration) -> Option<Vec<Facts>> {
        let questions = self.lock().take().filter(|questions| !questions.is_empty())?;
        timeout(patience, responses(questions)).await.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Pending>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn responses(questions: Vec<Pending>) -> Option<Vec<Facts>> {
    let mut all = Vec::with_capacity(questions.len());
    for question in questions {
        let head = question.head().await.ok()?;
        if !head.status.is_success() {
            return None;
        }
        all.push(Facts::of(&head, "access").ok()?);
    }
    Some(all)
}

/// A request for what a file is like, without its bytes.
pub fn question(url: &Url) -> Request {
    let request = Request::new(Method::HEAD, url.clone(), "access");
    request.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}
