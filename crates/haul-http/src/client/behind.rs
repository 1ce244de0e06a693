//! Whether a file is still the one that was read, asked for behind its last parts.
//!
//! A server answers on a connection in the order in which it was asked. So what it says of the file
//! behind the last part on each lane is not older than what was read, and costs no round trip at the
//! end. Where that cannot be had the question is asked anew.

use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::Result;
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};

use super::exchange::{Ask, Exchange};
use super::facts::Facts;
use super::pipe::{Part, Pipe};
use crate::parse::Url;

/// The questions, once the last part of a file has been asked for.
#[derive(Debug, Default)]
pub struct Behind {
    asked: Mutex<Option<Vec<Part>>>,
}

impl Behind {
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

    /// What the answers say; `None` if they do not say enough.
    pub async fn facts(&self) -> Option<Vec<Facts>> {
        let questions = self.lock().take().filter(|questions| !questions.is_empty())?;
        let mut all = Vec::with_capacity(questions.len());
        for mut question in questions {
            let head = question.head().await.ok()?;
            if !head.status.is_success() {
                return None;
            }
            all.push(Facts::of(&head, "look at").ok()?);
        }
        Some(all)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Part>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a file is like.
pub fn question(url: &Url) -> Ask {
    let ask = Ask::new(Method::HEAD, url.clone(), "look at");
    ask.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}
