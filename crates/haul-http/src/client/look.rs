//! Finds out what is at a path: for locations before they are opened, and for single paths later.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, join, select};
use haul_storage::{Entry, EntryKind, Error, ErrorKind, Range, RelPath, Result, UNKNOWN_SIZE};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};

use super::dav::{self, Seen};
use super::error;
use super::facts::Facts;
use super::file::{Codings, HttpFile, Opened};
use super::head::Head;
use super::host::HttpHost;
use super::inner::{Inner, ServerKind};
use super::list::index;
use super::page_cache::Page;
use super::request::Request;
use crate::parse::href::decode_name;
use crate::parse::index as pages;
use crate::parse::{Resource, Url};

/// What is at a URL.
#[derive(Debug)]
pub enum Found {
    /// A file, opened.
    File(Box<HttpFile>),
    /// A directory: its URL, with a slash at the end.
    Directory(Url),
}

/// The nearest existing directory of a URL, and the missing rest of its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The directory, with a slash at the end.
    pub directory: Url,
    /// The names below it, decoded; none if the URL itself is that directory.
    pub rest: Vec<Vec<u8>>,
    /// Whether there is a file at the URL. Then `rest` has only its name.
    pub is_file: bool,
}

impl HttpHost {
    /// Finds out what is at a URL of a web server.
    ///
    /// # Errors
    /// If nothing exists at the URL, or it is not readable.
    pub async fn find(&self, url: &Url) -> Result<Found> {
        match HttpFile::open(self.exchange(), url, true).await? {
            Opened::File(file) => Ok(Found::File(Box::new(file))),
            Opened::Page(mut response) => {
                drop(self.exchange().prefetched(url));
                let directory = response.url.with_path(response.url.path());
                let head = Head::clone(&response);
                // Errors here are ignored: listing the directory reports them.
                if let Ok(body) = response.whole("open", pages::LONGEST).await {
                    self.exchange()
                        .pages
                        .insert(directory.clone(), Page { head, body: body.into() });
                }
                Ok(Found::Directory(directory))
            }
            // Neither its name nor a listed length shows that the file is stored encoded: the server
            // encodes it for the transfer.
            Opened::Encoded { .. } => self.open_encoded(url, Codings::Decoded).await,
        }
    }

    async fn open_encoded(&self, url: &Url, codings: Codings) -> Result<Found> {
        match HttpFile::open_as(self.exchange(), url, false, codings).await? {
            Opened::File(file) => Ok(Found::File(Box::new(file))),
            Opened::Page(_) | Opened::Encoded { .. } => Err(not_found("open", url)),
        }
    }

    /// Finds out what is at a URL of a WebDAV server. Opens it at the same time, so that a file takes no
    /// longer than a plain open.
    ///
    /// # Errors
    /// If nothing exists at the URL, or it is not readable.
    pub async fn find_dav(&self, url: &Url) -> Result<Found> {
        join(self.look_and_open(url), self.prefetch(url)).await.0
    }

    async fn look_and_open(&self, url: &Url) -> Result<Found> {
        let look = pin!(dav::look(self.exchange(), url.clone(), "open"));
        let open = pin!(HttpFile::open(self.exchange(), url, true));
        let (seen, opened) = match select(look, open).await {
            Either::Left((seen, open)) => match seen? {
                Some(seen) if seen.resource.collection => return Ok(self.directory(url, &seen)),
                seen => (seen, open.await),
            },
            Either::Right((opened, look)) => (look.await?, opened),
        };
        let Some(seen) = seen else { return Err(not_found("open", url)) };
        if seen.resource.collection {
            return Ok(self.directory(url, &seen));
        }
        match opened? {
            Opened::File(file) => Ok(Found::File(Box::new(file))),
            Opened::Encoded { sent_bytes } => {
                let codings = Codings::by_length(seen.resource.size, sent_bytes);
                self.open_encoded(url, codings).await
            }
            Opened::Page(_) => Err(Error::new(ErrorKind::Protocol, "open")
                .at(url)
                .because("the server reports a file and returns a web page instead")),
        }
    }

    /// A directory. Further lanes no longer prefetch it as if it were a file.
    fn directory(&self, url: &Url, seen: &Seen) -> Found {
        drop(self.exchange().prefetched(url));
        Found::Directory(seen.url.as_directory())
    }

    /// The nearest existing directory of a URL that is to be written.
    ///
    /// # Errors
    /// If a file is where a directory is needed, a directory is not readable, or the server redirects to another
    /// server.
    pub async fn nearest(&self, url: &Url) -> Result<Nearest> {
        join(self.look_upwards(url), self.prefetch(url)).await.0
    }

    async fn look_upwards(&self, url: &Url) -> Result<Nearest> {
        let mut current = url.with_path(url.path());
        let mut rest = Vec::new();
        // The parent, needed if the name is missing, is requested at the same time. If it is not needed the
        // request still runs to its end, because cancelling it would cost the connection.
        let mut above = parent(&current).ok().flatten().map(|(above, _)| {
            let exchange = Arc::clone(self.exchange());
            tokio::spawn(async move { dav::look(&exchange, above, "open").await })
        });
        loop {
            let seen = match above.take_if(|_| !rest.is_empty()) {
                Some(request) => match request.await {
                    Ok(seen) => seen,
                    Err(failed) => resume_unwind(failed.into_panic()),
                },
                None => dav::look(self.exchange(), current.clone(), "open").await,
            };
            if let Ok(Some(seen)) = &seen
                && seen.url.origin != url.origin
            {
                let cause = format!(
                    "the server redirects to {}; uploads go only to the server that was named",
                    seen.url
                );
                return Err(Error::new(ErrorKind::PermissionDenied, "open")
                    .at(url)
                    .because(cause)
                    .hinting("name the other server instead"));
            }
            match seen {
                Ok(Some(seen)) if seen.resource.collection => {
                    rest.reverse();
                    let directory = seen.url.as_directory();
                    self.check_no_file(url, &directory, &rest).await?;
                    return Ok(Nearest { directory, rest, is_file: false });
                }
                Ok(Some(_)) if rest.is_empty() => {
                    let (above, name) = parent(&current)?.ok_or_else(|| not_found("open", url))?;
                    return Ok(Nearest { directory: above, rest: vec![name], is_file: true });
                }
                Ok(Some(_)) => return Err(Error::new(ErrorKind::NotADirectory, "open").at(current)),
                Ok(None) => {}
                // The parent may be unreadable, but then nothing can be created there.
                Err(error) => return Err(error),
            }
            let Some((above, name)) = parent(&current)? else {
                // A server's root exists even if the server reports it as missing. Creating something in it
                // reports why that fails.
                rest.reverse();
                return Ok(Nearest { directory: current, rest, is_file: false });
            };
            rest.push(name);
            current = above;
        }
    }
}

impl HttpHost {
    /// Checks that the first missing name is not a file's: with a slash behind its name a file is reported
    /// as missing.
    async fn check_no_file(&self, url: &Url, directory: &Url, rest: &[Vec<u8>]) -> Result<()> {
        let [_, _, ..] = rest else { return Ok(()) };
        // The name as encoded in the URL.
        let below = url.path().strip_prefix(directory.path()).unwrap_or_default();
        let first = below.split('/').next().unwrap_or_default();
        let url = directory.with_path(&format!("{}{first}", directory.path()));
        match dav::look(self.exchange(), url.clone(), "open").await? {
            Some(_) => Err(Error::new(ErrorKind::NotADirectory, "open").at(url)),
            None => Ok(()),
        }
    }
}

fn not_found(operation: &'static str, url: &Url) -> Error {
    Error::new(ErrorKind::NotFound, operation).at(url)
}

/// The parent directory, and the name in it; `None` for the root.
///
/// # Errors
/// `InvalidInput` if the percent-encoding of the name is malformed.
fn parent(url: &Url) -> Result<Option<(Url, Vec<u8>)>> {
    let path = url.path().trim_end_matches('/');
    let Some((above, name)) = path.rsplit_once('/') else { return Ok(None) };
    let Some(name) = decode_name(name.as_bytes()) else {
        let error = Error::new(ErrorKind::InvalidInput, "open").at(url);
        return Err(error.because("a % in its name is not followed by two hexadecimal digits"));
    };
    Ok(Some((url.with_path(&format!("{above}/")), name)))
}

impl Inner {
    /// The entry at `path`.
    pub(super) async fn look(&self, path: &RelPath) -> Result<Entry> {
        match self.server_kind {
            ServerKind::Web => {
                let mut entry = self.look_by_head(path).await?;
                // If the server sends something other than the file, HEAD reports the length of that, too:
                // the size in its index page takes precedence.
                if entry.is_file()
                    && let Some(listed) = index::listed_size(self, path).await
                {
                    entry.size = listed;
                }
                Ok(entry)
            }
            ServerKind::Dav => self.look_by_properties(path, "access").await?.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "access").at(self.location.display(path))
            }),
        }
    }

    /// The exact length of a file from its listing, if available. Errors are ignored: opening the file
    /// reports them.
    pub(super) async fn listed_size(&self, path: &RelPath) -> Option<u64> {
        match self.server_kind {
            ServerKind::Web => index::listed_size(self, path).await,
            ServerKind::Dav => {
                let entry = self.look_by_properties(path, "access").await;
                entry.ok().flatten().and_then(|entry| entry.known_size())
            }
        }
    }

    /// The entry at `path` on a WebDAV server; `None` if nothing exists at it.
    pub(super) async fn look_by_properties(
        &self,
        path: &RelPath,
        operation: &'static str,
    ) -> Result<Option<Entry>> {
        let seen = dav::look(self.exchange(), self.url(path), operation).await?;
        let Some(seen) = seen else { return Ok(None) };
        Ok(Some(self.described(path, &seen.resource).await?))
    }

    /// The entry of a resource. If the server has not reported its length, requests it by HEAD.
    pub(super) async fn described(&self, path: &RelPath, resource: &Resource) -> Result<Entry> {
        match dav::entry(path.clone(), resource) {
            Some(entry) => {
                if entry.is_dir() {
                    self.learnt.directories.learn(path.clone());
                }
                Ok(entry)
            }
            None => {
                let mut entry = self.look_by_head(path).await?;
                entry.tag = None;
                Ok(entry)
            }
        }
    }

    pub(super) async fn look_by_head(&self, path: &RelPath) -> Result<Entry> {
        self.look_by_head_at(path, None).await
    }

    /// Like [`Inner::look_by_head`], for a file of which an index page has a rounded length.
    pub(super) async fn look_by_head_at(
        &self,
        path: &RelPath,
        rounded: Option<Range>,
    ) -> Result<Entry> {
        let mut request = Request::new(Method::HEAD, self.url(path), "access");
        request = request.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = self.exchange().small(&request, 0).await?;
        if !response.status.is_success() {
            return Err(error::of_status(response.status, "access", &response.url));
        }
        if response.url.path().ends_with('/') {
            return Ok(Entry::new(path.clone(), EntryKind::Directory, 0));
        }
        let facts = Facts::of(&response, "access")?;
        let mut entry = facts.entry(path);
        if !facts.is_as_stored([&request.url, &response.url]) {
            // The decoded length is known only at the end, and the listed one is not that.
            entry.size = UNKNOWN_SIZE;
        } else {
            entry.rounded_size = rounded.map(Box::new);
        }
        Ok(entry)
    }

    /// Checks that the parent of `path` is a directory. On a server without MOVE nothing is checked.
    pub(super) async fn check_parent(&self, path: &RelPath, operation: &'static str) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if self.learnt.directories.has(&parent) || !self.quirks.moves {
            return Ok(());
        }
        let kind = match self.look_by_properties(&parent, operation).await? {
            Some(entry) if entry.is_dir() => return Ok(()),
            Some(_) => ErrorKind::NotADirectory,
            None => ErrorKind::NotFound,
        };
        Err(Error::new(kind, operation).at(self.location.display(&parent)))
    }
}
