//! Pages of directories that were read to find out what is there, kept for whoever lists them next: they
//! need not be asked for twice.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::head::Head;
use crate::parse::Url;

/// What is older is asked for anew.
const FRESH: Duration = Duration::from_secs(10);

/// More pages than this are never read ahead.
const MOST: usize = 4;

/// The pages, oldest first.
#[derive(Debug, Default)]
pub struct PageCache {
    pages: Mutex<VecDeque<(Url, Instant, Page)>>,
}

/// A page with its head.
#[derive(Debug, Clone)]
pub struct Page {
    /// What the server said before it.
    pub head: Head,
    /// All of it.
    pub body: Bytes,
}

impl PageCache {
    /// Keeps the page of a directory.
    pub fn keep(&self, directory: Url, page: Page) {
        let mut pages = self.lock();
        pages.push_back((directory, Instant::now(), page));
        if pages.len() > MOST {
            pages.pop_front();
        }
    }

    /// Gives the page of a directory, once.
    pub fn take(&self, directory: &Url) -> Option<Page> {
        let mut pages = self.lock();
        pages.retain(|(_, since, _)| since.elapsed() < FRESH);
        let at = pages.iter().position(|(kept, _, _)| kept == directory)?;
        pages.remove(at).map(|(_, _, page)| page)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Url, Instant, Page)>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
