//! What is at a path: asked for before anything is opened, and one by one later.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, join, select};
use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath, Result, UNKNOWN_SIZE};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};

use super::dav::{self, Seen};
use super::error;
use super::facts::Facts;
use super::file::{Codings, HttpFile, Opened};
use super::head::Head;
use super::host::HttpHost;
use super::inner::{Inner, Manner};
use super::list::index;
use super::page_cache::Page;
use super::request::Request;
use crate::parse::Url;
use crate::parse::href::decode_name;
use crate::parse::index as pages;

/// What is at a URL.
#[derive(Debug)]
pub enum Found {
    /// A file, opened.
    File(Box<HttpFile>),
    /// A directory: its URL, with a slash at the end.
    Directory(Url),
}

/// The directory nearest to a URL, and what of its path is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The directory, with a slash at the end.
    pub directory: Url,
    /// The names below it, decoded; none if the URL itself is that directory.
    pub rest: Vec<Vec<u8>>,
    /// Whether there is a file at the URL. Its name is the only one in `rest` then.
    pub is_file: bool,
}

impl HttpHost {
    /// Finds out what is at a URL of a web server.
    ///
    /// # Errors
    /// Nothing, or nothing that may be read.
    pub async fn find(&self, url: &Url) -> Result<Found> {
        match HttpFile::open(self.exchange(), url, true).await? {
            Opened::File(file) => Ok(Found::File(Box::new(file))),
            Opened::Page(mut response) => {
                drop(self.exchange().prefetched(url));
                let directory = response.url.with_path(response.url.path());
                let head = Head::clone(&response);
                // What goes wrong with it is met again, and told, by whoever lists it.
                if let Ok(body) = response.whole("open", pages::LONGEST).await {
                    self.exchange()
                        .pages
                        .insert(directory.clone(), Page { head, body: body.into() });
                }
                Ok(Found::Directory(directory))
            }
            // Nothing lists it, so nothing but its name could say that it is stored so.
            Opened::Encoded { .. } => self.open_encoded(url, Codings::Decoded).await,
        }
    }

    async fn open_encoded(&self, url: &Url, codings: Codings) -> Result<Found> {
        match HttpFile::open_as(self.exchange(), url, false, codings).await? {
            Opened::File(file) => Ok(Found::File(Box::new(file))),
            Opened::Page(_) | Opened::Encoded { .. } => Err(nothing("open", url)),
        }
    }

    /// Finds out what is at a URL of a WebDAV server. It is opened at the same time, so that a file
    /// costs no more than one that is known to be one.
    ///
    /// # Errors
    /// Nothing, or nothing that may be read.
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
        let Some(seen) = seen else { return Err(nothing("open", url)) };
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

    /// What was asked ahead of it, as if it were a file, is not asked of further lanes.
    fn directory(&self, url: &Url, seen: &Seen) -> Found {
        drop(self.exchange().prefetched(url));
        Found::Directory(seen.url.as_directory())
    }

    /// The directory nearest to a URL that is to be written.
    ///
    /// # Errors
    /// There is none, or a file is where a directory is needed.
    pub async fn nearest(&self, url: &Url) -> Result<Nearest> {
        join(self.look_upwards(url), self.prefetch(url)).await.0
    }

    async fn look_upwards(&self, url: &Url) -> Result<Nearest> {
        let mut current = url.with_path(url.path());
        let mut rest = Vec::new();
        // What is above a name that is missing is asked for at once. If it is not needed it is left to
        // end by itself, because a question that is given up costs its connection.
        let mut above = parent(&current).map(|(above, _)| {
            let exchange = Arc::clone(self.exchange());
            tokio::spawn(async move { dav::look(&exchange, above, "open").await })
        });
        loop {
            let seen = match above.take_if(|_| !rest.is_empty()) {
                Some(asked) => match asked.await {
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
                    let (above, name) = parent(&current).ok_or_else(|| nothing("open", url))?;
                    return Ok(Nearest { directory: above, rest: vec![name], is_file: true });
                }
                Ok(Some(_)) => return Err(Error::new(ErrorKind::NotADirectory, "open").at(current)),
                Ok(None) => {}
                // What is above may be nobody's business, but then nothing can be made there.
                Err(error) => return Err(error),
            }
            let Some((above, name)) = parent(&current) else {
                // Not everybody may look at the root of a server, and it is there all the same. What is to be
                // made in it says why it cannot be.
                rest.reverse();
                return Ok(Nearest { directory: current, rest, is_file: false });
            };
            rest.push(name);
            current = above;
        }
    }
}

impl HttpHost {
    /// That the first of the names that are missing is not that of a file, which with a slash behind
    /// its name is nothing.
    async fn check_no_file(&self, url: &Url, directory: &Url, rest: &[Vec<u8>]) -> Result<()> {
        let [_, _, ..] = rest else { return Ok(()) };
        // As it stands in the URL.
        let below = url.path().strip_prefix(directory.path()).unwrap_or_default();
        let first = below.split('/').next().unwrap_or_default();
        let url = directory.with_path(&format!("{}{first}", directory.path()));
        match dav::look(self.exchange(), url.clone(), "open").await? {
            Some(_) => Err(Error::new(ErrorKind::NotADirectory, "open").at(url)),
            None => Ok(()),
        }
    }
}

fn nothing(operation: &'static str, url: &Url) -> Error {
    Error::new(ErrorKind::NotFound, operation).at(url)
}

/// The directory above, and the name in it; `None` of the root.
fn parent(url: &Url) -> Option<(Url, Vec<u8>)> {
    let path = url.path().trim_end_matches('/');
    let (above, name) = path.rsplit_once('/')?;
    Some((url.with_path(&format!("{above}/")), decode_name(name.as_bytes())?))
}

impl Inner {
    /// Describes one entry.
    pub(super) async fn look(&self, path: &RelPath) -> Result<Entry> {
        match self.manner {
            Manner::Web => {
                let mut entry = self.look_by_head(path).await?;
                // A server that answers a GET with something else answers a HEAD so, too: what counts is
                // what its page lists.
                if entry.is_file()
                    && let Some(listed) = index::listed_size(self, path).await
                {
                    entry.size = listed;
                }
                Ok(entry)
            }
            Manner::Dav => self.look_by_properties(path, "access").await?.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "access").at(self.location.display(path))
            }),
        }
    }

    /// The length of a file as it is listed, if that is exact and can be found out. Errors are no response
    /// here: whoever opens the file meets them.
    pub(super) async fn listed_size(&self, path: &RelPath) -> Option<u64> {
        match self.manner {
            Manner::Web => index::listed_size(self, path).await,
            Manner::Dav => {
                let entry = self.look_by_properties(path, "access").await;
                entry.ok().flatten().and_then(|entry| entry.known_size())
            }
        }
    }

    /// Describes one entry of a WebDAV server; `None` if nothing is there.
    pub(super) async fn look_by_properties(
        &self,
        path: &RelPath,
        operation: &'static str,
    ) -> Result<Option<Entry>> {
        let seen = dav::look(self.exchange(), self.url(path), operation).await?;
        let Some(seen) = seen else { return Ok(None) };
        match dav::entry(path.clone(), &seen.resource) {
            Some(entry) => {
                if entry.is_dir() {
                    self.directories.learn(path.clone());
                }
                Ok(Some(entry))
            }
            None => {
                let mut entry = self.look_by_head(path).await?;
                entry.tag = None;
                Ok(Some(entry))
            }
        }
    }

    pub(super) async fn look_by_head(&self, path: &RelPath) -> Result<Entry> {
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
            // How long it is when it is decoded is known at its end.
            entry.size = UNKNOWN_SIZE;
        }
        Ok(entry)
    }

    /// That what `path` would be in is a directory.
    pub(super) async fn check_parent(&self, path: &RelPath, operation: &'static str) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if self.directories.has(&parent) || !self.quirks.moves {
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
