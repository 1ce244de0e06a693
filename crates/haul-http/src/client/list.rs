//! Lists a directory: by PROPFIND from a WebDAV server, while the response arrives, and from index pages
//! of other servers ([`index`]).

mod apart;
pub(super) mod index;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, EntryStream, Error, ErrorKind, RelPath, Result, Retry};
use tokio::time::sleep;

use self::apart::{MAX_LENGTH_REQUESTS, apart};
use super::dav;
use super::error;
use super::inner::{Inner, ServerKind};
use super::response::Response;
use crate::parse::href::{Base, resolve_path};
use crate::parse::{Limits, Multistatus, Resource, Target};

/// How often a listing restarts after a transient failure.
const TRIES: u8 = 4;
const PAUSE: Duration = Duration::from_millis(300);

/// The most names of a directory that are remembered, to detect duplicates and names returned before a
/// restart.
const REMEMBERED: usize = 1 << 18;

impl Inner {
    pub(super) async fn list(self: Arc<Self>, path: &RelPath) -> Result<EntryStream> {
        if self.server_kind == ServerKind::Web {
            let path = path.clone();
            return apart(async move { index::list(self, &path).await }).await;
        }
        let (inner, directory) = (Arc::clone(&self), path.clone());
        let current = apart(async move { open(&inner, &directory).await }).await?;
        let listing = Listing {
            inner: self,
            path: path.clone(),
            current: Some(current),
            pass: 0,
            names: HashMap::new(),
            hasher: RandomState::new(),
        };
        let batches = stream::unfold(listing, |mut listing| async move {
            let batch = listing.next().await?;
            Some((stream::iter(batch), listing))
        });
        Ok(batches.flatten().boxed())
    }

    /// Entries of files whose length is unknown, each completed by a HEAD request.
    async fn with_lengths(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        let looks = paths.into_iter().map(async |path| self.look_by_head(&path).await);
        stream::iter(looks).buffer_unordered(MAX_LENGTH_REQUESTS).collect().await
    }
}

/// Requests a listing, and returns once its response has begun.
async fn open(inner: &Inner, path: &RelPath) -> Result<Current> {
    let request = dav::propfind(inner.directory_url(path), "1", "list");
    let response = inner.exchange().patiently(&request).await?;
    // The consumer may take any time.
    response.hold();
    let failed = match dav::expect_multistatus(&response, "list") {
        Ok(()) => {
            let base = Base::from_url(&response.url).map_err(|error| {
                let error = error.to_string();
                Error::new(ErrorKind::Protocol, "list").at(&response.url).because(error)
            })?;
            return Ok(Current { response, base, parser: Multistatus::new(Limits::default()) });
        }
        Err(error) => error,
    };
    drop(response);
    // A file's name with a slash behind it does not exist for most servers, and is an error for Apache.
    let at = |kind| Error::new(kind, "list").at(inner.location.display(path));
    match inner.look_by_properties(path, "list").await {
        Ok(Some(entry)) if !entry.is_dir() => Err(at(ErrorKind::NotADirectory)),
        Ok(None) => Err(at(ErrorKind::NotFound)),
        _ => Err(failed),
    }
}

struct Listing {
    inner: Arc<Inner>,
    path: RelPath,
    current: Option<Current>,
    /// How often it has restarted.
    pass: u8,
    /// Hashes of names, and the pass in which they last occurred.
    names: HashMap<u64, u8>,
    hasher: RandomState,
}

struct Current {
    response: Response,
    base: Base,
    parser: Multistatus,
}

/// Whether a name has occurred in the listing before.
enum Name {
    New,
    /// It was returned before the restart.
    Given,
    /// It is in the listing twice.
    Twice,
}

impl Listing {
    /// The next entries, and errors for links that cannot be entries.
    async fn next(&mut self) -> Option<Vec<Result<Vec<Entry>>>> {
        loop {
            let current = self.current.as_mut()?;
            let resources = match current.response.next("list").await {
                Ok(Some(bytes)) => current.parser.push(&bytes),
                Ok(None) => {
                    let Current { response, parser, .. } = self.current.take()?;
                    let error = dav::malformed(&response.url, "list", parser.finish().err()?);
                    // rclone truncates a listing while a file is being created.
                    match self.begin_anew(error.with_retry(Retry::Later)).await {
                        Ok(()) => continue,
                        Err(error) => return Some(self.end(error)),
                    }
                }
                Err(error) => match self.begin_anew(error).await {
                    Ok(()) => continue,
                    Err(error) => return Some(self.end(error)),
                },
            };
            let resources = match resources {
                Ok(resources) => resources,
                Err(error) => {
                    let error = dav::malformed(&current.response.url, "list", error);
                    return Some(self.end(error));
                }
            };
            let batch = self.batch(resources).await;
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    fn end(&mut self, error: Error) -> Vec<Result<Vec<Entry>>> {
        self.current = None;
        vec![Err(error.at(self.inner.location.display(&self.path)))]
    }

    /// Requests the listing again, if the error is transient and all names returned so far are remembered.
    async fn begin_anew(&mut self, error: Error) -> Result<()> {
        let known = self.names.len() < REMEMBERED;
        if error.retry() != Retry::Later || !known || self.pass >= TRIES {
            return Err(error);
        }
        self.current = None;
        sleep(PAUSE).await;
        self.pass += 1;
        self.current = Some(open(&self.inner, &self.path).await?);
        Ok(())
    }

    async fn batch(&mut self, resources: Vec<Resource>) -> Vec<Result<Vec<Entry>>> {
        let mut batch = Vec::new();
        let mut entries = Vec::with_capacity(resources.len());
        let mut unknown = Vec::new();
        for resource in resources {
            match self.child(&resource) {
                Ok(None) => {}
                Ok(Some(path)) => match dav::entry(path.clone(), &resource) {
                    Some(entry) => entries.push(entry),
                    None => unknown.push(path),
                },
                Err(error) if error.kind() == ErrorKind::NotADirectory => return self.end(error),
                Err(error) => batch.push(Err(error)),
            }
        }
        for entry in self.inner.with_lengths(unknown).await {
            match entry {
                Ok(mut entry) => {
                    entry.tag = None;
                    entries.push(entry);
                }
                Err(error) => batch.push(Err(error)),
            }
        }
        for entry in entries.iter().filter(|entry| entry.is_dir()) {
            self.inner.learnt.directories.learn(entry.path.clone());
        }
        if !entries.is_empty() {
            batch.push(Ok(entries));
        }
        batch
    }

    /// The path of an entry; `None` for the directory itself and for entries returned already.
    fn child(&mut self, resource: &Resource) -> Result<Option<RelPath>> {
        let Some(current) = &self.current else { return Ok(None) };
        let target = resolve_path(&current.base, resource.href.as_bytes());
        if target == Ok(Target::This)
            && let Some(status) = dav::failure(resource)
        {
            return Err(error::of_status(status, "list", &current.response.url));
        }
        let name = match target {
            Ok(Target::This) if resource.collection || resource.status.is_some() => {
                return Ok(None);
            }
            Ok(Target::This) => {
                let error = Error::new(ErrorKind::NotADirectory, "list");
                return Err(error.at(self.inner.location.display(&self.path)));
            }
            Ok(Target::Child { name, .. }) => name,
            Err(error) => return Err(self.refused(&resource.href, &error.to_string())),
        };
        let path = self
            .path
            .join(&name)
            .map_err(|error| self.refused(&resource.href, &format!("a name that {error}")))?;
        match self.remember(&name) {
            Name::Given => return Ok(None),
            Name::Twice => return Err(self.refused(&resource.href, "a duplicate name")),
            Name::New => {}
        }
        match dav::failure(resource) {
            Some(status) => Err(error::of_status(status, "list", &self.inner.url(&path))),
            None => Ok(Some(path)),
        }
    }

    fn remember(&mut self, name: &[u8]) -> Name {
        if self.names.len() >= REMEMBERED {
            return Name::New;
        }
        match self.names.insert(self.hasher.hash_one(name), self.pass) {
            None => Name::New,
            Some(pass) if pass < self.pass => Name::Given,
            Some(_) => Name::Twice,
        }
    }

    fn refused(&self, href: &str, why: &str) -> Error {
        Error::new(ErrorKind::InvalidInput, "list")
            .at(self.inner.location.display(&self.path))
            .because(format!("the server lists '{}': {why}", href.escape_debug()))
    }
}
