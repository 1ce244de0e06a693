//! One server, as everything that asks it sees it: lanes, and what is known of it.

use std::sync::Arc;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, LinkStatus, Result};

use super::error;
use super::lanes::Lanes;
use super::session::{Server, Session};
use crate::codec::{Attrs, Extended, Request, Response, Status, name};
use crate::transport::Dial;

/// How often a question that changes nothing is asked again when its lane is lost.
const TRIES: usize = 4;

/// One server with its lanes. Several storages can be on it.
#[derive(Debug)]
pub struct SftpHost {
    pub(super) lanes: Arc<Lanes>,
}

/// What a path of a location is on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The path from the server's root, links resolved as far as it exists.
    pub path: Bytes,
    /// What is there, links followed.
    pub attrs: Option<Attrs>,
}

impl SftpHost {
    /// A server that is reached by `dial`; nothing is opened yet.
    pub fn new(dial: Arc<dyn Dial>) -> Arc<Self> {
        Arc::new(Self { lanes: Lanes::new(dial) })
    }

    /// What the link looks like.
    pub fn link(&self) -> LinkStatus {
        self.lanes.status()
    }

    /// Round trips that opening the first lane took.
    pub fn round_trips(&self) -> u32 {
        self.lanes.round_trips()
    }

    /// What a path as users write it is on the server, and what is there: without a leading slash
    /// it is below the home, as is what follows `~/`. Both questions share a round trip.
    pub async fn resolve(&self, path: &[u8]) -> Result<Resolved> {
        let asked = Bytes::copy_from_slice(path_on_server(path));
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_resolve(path, &asked).await {
                Err(error) if tries < TRIES && is_lost_lane(&error) => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_resolve(&self, path: &[u8], asked: &Bytes) -> Result<Resolved> {
        let session = self.session().await?;
        let other_home = path.starts_with(b"~") && asked == path;
        let asked = if other_home { self.expand(&session, asked).await? } else { asked.clone() };
        let absolute = session.request(&Request::Realpath(asked.clone()));
        let there = session.request(&Request::Stat(asked.clone()));
        let absolute = absolute.answer().await?;
        let attrs = match there.answer().await? {
            Response::Status { status: Status::NoSuchFile, .. } => None,
            other => Some(error::attrs("look at", other).map_err(|e| self.at(e, &asked))?),
        };
        let path = match absolute {
            // Some servers have no realpath for what does not exist. The name is good enough if it
            // is absolute.
            Response::Status { .. } if attrs.is_none() && asked.starts_with(b"/") => asked,
            other => error::one_name("resolve", other).map_err(|e| self.at(e, &asked))?.name,
        };
        if !path.starts_with(b"/") {
            return Err(Error::new(ErrorKind::Protocol, "resolve")
                .at(self.lanes.host())
                .because("the server gave a path without a leading slash"));
        }
        Ok(Resolved { path, attrs })
    }

    /// `~user` needs a server that knows how.
    async fn expand(&self, session: &Session, path: &Bytes) -> Result<Bytes> {
        if !session.server().await?.extensions.has(name::EXPAND_PATH) {
            return Err(Error::new(ErrorKind::Unsupported, "resolve")
                .at(self.lanes.host())
                .because("the server knows no other user's home (expand-path@openssh.com)"));
        }
        let request = Request::Extended(Extended::ExpandPath(path.clone()));
        let answer = session.request(&request).answer().await?;
        Ok(error::one_name("resolve", answer).map_err(|e| self.at(e, path))?.name)
    }

    /// The lane with the least to do.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        self.lanes.session().await
    }

    /// What the server can do.
    pub(super) async fn server(&self) -> Result<Arc<Server>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.session().await?.server().await {
                Err(error) if tries < TRIES && is_lost_lane(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// Asks something that changes nothing; again if the lane is lost meanwhile.
    pub(super) async fn ask(&self, request: &Request) -> Result<Response> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.session().await?.request(request).answer().await {
                Err(error) if tries < TRIES && is_lost_lane(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// Asks for something to be done, once.
    pub(super) async fn tell(&self, request: &Request) -> Result<Response> {
        self.session().await?.request(request).answer().await
    }

    fn at(&self, error: Error, path: &[u8]) -> Error {
        error.at(format!("{}:{}", self.lanes.host(), String::from_utf8_lossy(path)))
    }
}

fn is_lost_lane(error: &Error) -> bool {
    error.kind() == ErrorKind::Unreachable
}

/// A path as users write it in the server's terms: what is below the home is relative there.
fn path_on_server(path: &[u8]) -> &[u8] {
    // `sftp://host/~/x` is `/~/x`, scp's `host:~/x` is `~/x`.
    let below_home = path.strip_prefix(b"/~/").or_else(|| path.strip_prefix(b"~/"));
    match below_home {
        Some(b"") => b".",
        Some(rest) => rest,
        None if matches!(path, b"" | b"~" | b"/~") => b".",
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_where_the_server_starts() {
        for (written, asked) in [
            ("", "."),
            ("~", "."),
            ("~/", "."),
            ("/~", "."),
            ("/~/a/b", "a/b"),
            ("~/a", "a"),
            ("a", "a"),
            ("/a", "/a"),
            ("~ada/x", "~ada/x"),
        ] {
            assert_eq!(path_on_server(written.as_bytes()), asked.as_bytes(), "{written}");
        }
    }
}
