//! Lists directories of a web server from its index pages.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, EntryKind, EntryStream, Error, ErrorKind, Range, RelPath, Result};
use http::header::CONTENT_TYPE;

use super::super::error;
use super::super::head::Head;
use super::super::inner::Inner;
use super::super::page_cache::Page;
use super::super::remote::whole;
use super::apart::{MAX_LENGTH_REQUESTS, apart};
use crate::parse::Url;
use crate::parse::href::Base;
use crate::parse::index::{self, Index, Listed};

/// Most files whose length is requested in search of one that is not empty.
const MOST_SOUGHT: usize = 32;

/// Lists a directory from its index page, which is held in memory (32 MiB at most). Sizes that the page does not show
/// exactly are requested by HEAD while the stream is consumed.
pub(super) async fn list(inner: Arc<Inner>, path: &RelPath) -> Result<EntryStream> {
    let at = |kind| Error::new(kind, "list").at(inner.location.display(path));
    let page = page(&inner, &inner.directory_url(path)).await?;
    let index = read(&inner, path, &page)?;
    let refused = (index.refused > 0).then(|| {
        Err(at(ErrorKind::InvalidInput)
            .because(format!("{} links are not valid file names", index.refused)))
    });
    let path = path.clone();
    let entries = stream::iter(index.entries)
        .map(move |listed| {
            let (inner, path) = (Arc::clone(&inner), path.clone());
            let entry = async move { entry(&inner, &path, listed).await };
            async move { apart(entry).await.map(|entry| vec![entry]) }
        })
        .buffer_unordered(MAX_LENGTH_REQUESTS);
    Ok(stream::iter(refused).chain(entries).boxed())
}

/// The first non-empty file in a directory; without one, its first subdirectory. Where the page shows no sizes, it
/// requests the lengths of files one after the other, of [`MOST_SOUGHT`] at most. The page stays cached for the next
/// listing.
pub(in super::super) async fn first(inner: &Inner, path: &RelPath) -> Result<Option<Entry>> {
    let url = inner.directory_url(path);
    let pages = &inner.exchange().pages;
    let page = match pages.get(&url) {
        Some(page) => page,
        None => {
            let page = fetch(inner, &url).await?;
            pages.insert(url, page.clone());
            page
        }
    };
    let (mut directory, mut sought) = (None, 0);
    for listed in read(inner, path, &page)?.entries {
        sought += usize::from(!listed.directory && listed.size.is_none());
        if sought > MOST_SOUGHT {
            break;
        }
        let Ok(entry) = entry(inner, path, listed).await else { break };
        if entry.is_file() && entry.size > 0 {
            return Ok(Some(entry));
        }
        if entry.is_dir() {
            directory.get_or_insert(entry);
        }
    }
    Ok(directory)
}

/// The size of a file according to the current index page of its directory; `None` without such a page, or if the
/// page shows no exact size.
pub(in super::super) async fn listed_size(inner: &Inner, path: &RelPath) -> Option<u64> {
    listed_now(inner, path).await?.size
}

/// The entry of a file whose exact length the index page does not show: HEAD reports it. If the page would not round
/// that length to what it shows, the file may have changed since, so the page is requested once more, and the length
/// again if the page has changed. The entry has the length and the rounded one, even if they still differ.
async fn by_head(inner: &Inner, path: &RelPath, rounded: Option<Range>) -> Result<Entry> {
    let entry = inner.look_by_head_at(path, rounded).await?;
    let (Some(size), Some(range)) = (entry.known_size(), &entry.rounded_size) else {
        return Ok(entry);
    };
    if range.contains(size) {
        return Ok(entry);
    }
    let Some(now) = listed_now(inner, path).await else { return Ok(entry) };
    let now = now.size.map(|size| Range::new(size, 1)).or(now.rounded);
    if now == rounded { Ok(entry) } else { inner.look_by_head_at(path, now).await }
}

/// What the current index page of its directory shows of a file.
async fn listed_now(inner: &Inner, path: &RelPath) -> Option<Listed> {
    let directory = path.parent()?;
    let page = fetch(inner, &inner.directory_url(&directory)).await.ok()?;
    let index = read(inner, &directory, &page).ok()?;
    index.entries.into_iter().find(|listed| listed.name == path.name())
}

/// Parses an index page.
fn read(inner: &Inner, path: &RelPath, page: &Page) -> Result<Index> {
    let at = |kind| Error::new(kind, "list").at(inner.location.display(path));
    let Page { head: response, body: page } = page;
    if !response.url.path().ends_with('/') {
        return Err(at(ErrorKind::NotADirectory));
    }
    let kind = response.header(&CONTENT_TYPE).unwrap_or_default();
    let base = Base::from_url(&response.url).map_err(|error| error.to_string());
    let base = base.map_err(|cause| at(ErrorKind::Protocol).because(cause))?;
    if !index::is_index(kind, &base, page) {
        return Err(at(ErrorKind::Unsupported)
            .because("the server returned a web page that is not a directory listing"));
    }
    let index = index::parse(&base, page).map_err(|error| error.to_string());
    index.map_err(|cause| at(ErrorKind::Protocol).because(cause))
}

/// The index page of a directory, which may be cached.
async fn page(inner: &Inner, url: &Url) -> Result<Page> {
    match inner.exchange().pages.take(url) {
        Some(page) => Ok(page),
        None => fetch(inner, url).await,
    }
}

async fn fetch(inner: &Inner, url: &Url) -> Result<Page> {
    let mut request = whole(url);
    request.operation = "list";
    let mut response = inner.exchange().patiently(&request).await?;
    if !response.status.is_success() {
        let error = error::of_status(response.status, "list", &response.url);
        drop(response);
        return Err(error);
    }
    let body = response.whole("list", index::LONGEST).await?;
    Ok(Page { head: Head::clone(&response), body: body.into() })
}

async fn entry(inner: &Inner, directory: &RelPath, listed: Listed) -> Result<Entry> {
    let path = directory.join(&listed.name).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "list")
            .at(inner.location.display(directory))
            .because(format!("the server lists a name that {error}"))
    })?;
    let mut entry = match (listed.directory, listed.size) {
        (true, _) => Entry::new(path, EntryKind::Directory, 0),
        (false, Some(size)) => Entry::new(path, EntryKind::File, size),
        (false, None) => return by_head(inner, &path, listed.rounded).await,
    };
    entry.modified = listed.modified;
    Ok(entry)
}
