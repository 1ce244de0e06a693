//! A cache of directory index pages. A lookup, or the probe for range support, stores the page of a directory here, so
//! that a listing shortly afterwards need not request it again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::head::Head;
use crate::parse::Url;

/// Older pages are dropped and requested again.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Most pages in the cache.
const MAX_PAGES: usize = 4;

/// The pages, oldest first.
#[derive(Debug, Default)]
pub struct PageCache {
    pages: Mutex<VecDeque<(Url, Instant, Page)>>,
}

/// A page with its head.
#[derive(Debug, Clone)]
pub struct Page {
    /// Status and header fields of the response.
    pub head: Head,
    /// The whole body.
    pub body: Bytes,
}

impl PageCache {
    /// Stores the page of a directory, in place of an older one of it, or of the oldest one if the cache is full.
    pub fn insert(&self, directory: Url, page: Page) {
        let mut pages = self.lock();
        pages.retain(|(cached, _, _)| *cached != directory);
        pages.push_back((directory, Instant::now(), page));
        if pages.len() > MAX_PAGES {
            pages.pop_front();
        }
    }

    /// The page of a directory, which stays.
    pub fn get(&self, directory: &Url) -> Option<Page> {
        let pages = self.lock();
        let is_current = |(cached, since, _): &&(Url, Instant, Page)| {
            cached == directory && since.elapsed() < MAX_AGE
        };
        pages.iter().find(is_current).map(|(_, _, page)| page.clone())
    }

    /// Removes and returns the page of a directory.
    pub fn take(&self, directory: &Url) -> Option<Page> {
        let mut pages = self.lock();
        pages.retain(|(_, since, _)| since.elapsed() < MAX_AGE);
        let at = pages.iter().position(|(cached, _, _)| cached == directory)?;
        pages.remove(at).map(|(_, _, page)| page)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Url, Instant, Page)>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, the older of two pages of a directory was returned, and both took up space.
    #[test]
    fn a_page_replaces_the_older_one_of_its_directory() {
        let cache = PageCache::default();
        let url = |text: &str| Url::parse(text).unwrap();
        let page = |body: &'static str| {
            let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
            Page { head: Head { status, headers, url: url("http://h/d/") }, body: body.into() }
        };
        for body in ["old", "new"] {
            cache.insert(url("http://h/d/"), page(body));
        }
        assert_eq!(cache.take(&url("http://h/d/")).unwrap().body, "new");
        assert!(cache.take(&url("http://h/d/")).is_none());
    }
}
