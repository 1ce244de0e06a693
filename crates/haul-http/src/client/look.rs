//! What is at a path: asked for before anything is opened, and one by one later.

use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath, Result};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};

use super::error;
use super::exchange::Ask;
use super::facts::Facts;
use super::file::{HttpFile, Opened};
use super::host::HttpHost;
use super::storage::Inner;
use crate::parse::Url;

/// What is at a URL.
#[derive(Debug)]
pub enum Found {
    /// A file, opened.
    File(Box<HttpFile>),
    /// A directory: its URL, with a slash at the end.
    Directory(Url),
}

impl HttpHost {
    /// Finds out what is at a URL of a web server.
    ///
    /// # Errors
    /// Nothing, or nothing that may be read.
    pub async fn find(&self, url: &Url) -> Result<Found> {
        match HttpFile::open(self.exchange(), url, true).await? {
            Opened::File(file) => Ok(Found::File(Box::new(file))),
            Opened::Page(answer) => {
                let found = answer.url.clone();
                answer.drain().await;
                Ok(Found::Directory(found.with_path(found.path())))
            }
        }
    }
}

impl Inner {
    /// Describes one entry.
    pub(super) async fn look(&self, path: &RelPath) -> Result<Entry> {
        let mut ask = Ask::new(Method::HEAD, self.url(path), "look at");
        ask = ask.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let answer = self.exchange().patiently(&ask).await?;
        if !answer.status.is_success() {
            return Err(error::of_status(answer.status, "look at", &answer.url));
        }
        if answer.url.path().ends_with('/') {
            return Ok(Entry::new(path.clone(), EntryKind::Directory, 0));
        }
        let facts = Facts::of(&answer, "look at")?;
        if facts.size.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "look at")
                .at(self.location.display(path))
                .because("the server does not say how long it is"));
        }
        Ok(facts.entry(path))
    }
}
