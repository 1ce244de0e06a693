//! Features of a server beyond plain WebDAV, by how it identifies itself.
//!
//! Nothing is tried that could do harm: a server that does not support `Content-Range` in a PUT replaces
//! the whole file by the part (rclone 1.60 does). So features are used only with servers that identify
//! themselves:
//!
//! | server | known by | partial writes | a PUT is whole or nothing | conditions | times |
//! |---|---|---|---|---|---|
//! | Apache, mod_dav_fs | `DAV: <http://apache.org/dav/propset/fs/1>` | PUT with `Content-Range` | yes | yes | no |
//! | nginx, dav-ext | its constant `Allow` | no (400) | yes | no | no |
//! | Nextcloud, ownCloud | `/remote.php/` and their DAV classes | chunks, see [`super::upload`] | yes | yes | `X-OC-Mtime`, `DAV:lastmodified` |
//! | haul | `Server: haul` | PATCH | yes | yes | `X-OC-Mtime`, `Win32LastModifiedTime` |
//! | SabreDAV | `DAV: sabredav-partialupdate` | PATCH | no | no | no |
//! | any other | | no | no | no | no |
//!
//! Conditions are `If-None-Match: *` and `If-Match` of a PUT, and `If` of a MOVE (RFC 4918, section 10.4).
//!
//! nginx-dav-ext lists no names that begin with a dot, so a directory with only such names counts as empty and is
//! removed as such.
//!
//! The rows of Apache, nginx and rclone ("any other") were observed with versions 2.4, 1.22 with dav-ext
//! 3.0, and 1.60; those of Nextcloud and SabreDAV follow their manuals and were not tested.

use haul_storage::{Capabilities, DigestKind, Medium, StoredTimes, Writes};
use http::HeaderMap;
use http::header::{ALLOW, HeaderName, SERVER};

use crate::parse::Url;

const DAV: HeaderName = HeaderName::from_static("dav");

/// Bytes per request that writes a part of a file: the server opens the file for each.
const WRITE: u64 = 1 << 20;

/// Files up to this length are read or written by one request.
const WHOLE: u64 = 256 << 10;

/// How a part of a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partial {
    /// PUT with `Content-Range` (RFC 9110, 14.5).
    ContentRange,
    /// PATCH with `X-Update-Range`, as SabreDAV has it.
    UpdateRange,
}

/// How a modification time is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// `X-OC-Mtime` with a PUT, and `DAV:lastmodified` in seconds by PROPPATCH.
    OwnCloud,
    /// `X-OC-Mtime` with a PUT, and `Win32LastModifiedTime` by PROPPATCH.
    Haul,
}

/// What is known about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quirks {
    /// How parts are written, if the server supports it.
    pub partial: Option<Partial>,
    /// The URL of the directory where chunks of large files are assembled (Nextcloud, ownCloud).
    pub chunks: Option<Url>,
    /// Whether a PUT appears whole under its name or not at all.
    pub puts_whole: bool,
    /// Whether MKCOL fails if something exists (RFC 4918, 9.3). On rclone it does not.
    pub mkcol_detects_existing: bool,
    /// Whether conditions are evaluated: a PUT can be restricted to new files (`If-None-Match: *`) or to one version
    /// (`If-Match`), and a MOVE to one version at its destination (`If`).
    pub conditional: bool,
    /// How times are set, if the server supports it.
    pub times: Option<Times>,
    /// Whether there are MOVE and COPY. Without them a file is written under its final name.
    pub moves: bool,
    /// Whether it reports SHA-256 digests of files on request (RFC 9530).
    pub digests: bool,
}

impl Quirks {
    /// A WebDAV server about which nothing is known.
    pub const fn unknown() -> Self {
        Self {
            partial: None,
            chunks: None,
            puts_whole: false,
            mkcol_detects_existing: false,
            conditional: false,
            times: None,
            moves: true,
            digests: false,
        }
    }

    /// From the response to OPTIONS for `root`.
    pub fn of(headers: &HeaderMap, root: &Url) -> Self {
        let all = |name: &HeaderName| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.collect::<Vec<_>>().join(",").to_ascii_lowercase()
        };
        let (dav, allow, server) = (all(&DAV), all(&ALLOW).replace(' ', ""), all(&SERVER));
        let mut quirks = Self::unknown();
        if dav.split(',').any(|class| class.trim() == "sabredav-partialupdate") {
            quirks.partial = Some(Partial::UpdateRange);
        }
        if dav.contains("<http://apache.org/dav/propset/fs/1>") {
            quirks.partial = Some(Partial::ContentRange);
            (quirks.puts_whole, quirks.conditional, quirks.mkcol_detects_existing) =
                (true, true, true);
        } else if allow.starts_with("get,head,put,delete,mkcol,copy,move,propfind,options") {
            (quirks.puts_whole, quirks.mkcol_detects_existing) = (true, true);
        } else if is_own_cloud(&dav, root) {
            (quirks.puts_whole, quirks.conditional, quirks.mkcol_detects_existing) =
                (true, true, true);
            quirks.times = Some(Times::OwnCloud);
            quirks.chunks = chunks(root);
        } else if server == "haul" {
            (quirks.puts_whole, quirks.conditional, quirks.mkcol_detects_existing) =
                (true, true, true);
            quirks.times = Some(Times::Haul);
            quirks.digests = true;
        }
        // Class 1 includes MOVE (RFC 4918, 18.1). Servers without WebDAV do not list it in `Allow`.
        quirks.moves = dav.split(',').any(|class| class.trim() == "1")
            || allow.is_empty()
            || allow.split(',').any(|method| method == "move");
        quirks
    }

    /// The capabilities of a storage on this server.
    pub fn capabilities(&self) -> Capabilities {
        let parts = self.moves && self.partial.is_some();
        of_web(true).with(|can| {
            can.writes = if parts { Writes::AnyOrder } else { Writes::InOrder };
            can.rename = self.moves;
            can.conditional_commits = self.moves && self.conditional;
            can.server_copy = self.moves;
            can.resume = parts;
            can.pipelined_writes = parts;
            // Unlike an index page, which may leave names out.
            can.complete_lists = true;
            can.write_bytes = if parts { WRITE } else { 0 };
            can.times = self.times.is_some();
            can.digests = if self.digests { vec![DigestKind::Sha256] } else { Vec::new() };
        })
    }
}

/// From 1970 to the last year of four digits, which HTTP dates have.
pub const STORED_TIMES: StoredTimes = StoredTimes::seconds(0, 253_402_300_799);

/// The capabilities of a read-only storage. `ranged`: ranges of its files can be requested.
pub fn of_web(ranged: bool) -> Capabilities {
    Capabilities::least(Medium::Link).with(|can| {
        can.ranged_reads = ranged;
        can.stored_times = STORED_TIMES;
        can.pipelined_reads = true;
        can.bounded_reads = haul_net::COUNTS_RECEIVED_BYTES;
        can.whole_limit = WHOLE;
    })
}

fn is_own_cloud(dav: &str, root: &Url) -> bool {
    root.path().contains("/remote.php/")
        && ["nextcloud-", "oc-resource-sharing", "nc-", "oc-calendar"]
            .iter()
            .any(|class| dav.contains(class))
}

/// The directory for chunks of a user's files. With `/remote.php/webdav/` the user is unknown.
fn chunks(root: &Url) -> Option<Url> {
    let (before, below) = root.path().split_once("/remote.php/dav/files/")?;
    let user = below.split('/').next().filter(|user| !user.is_empty())?;
    Some(root.with_path(&format!("{before}/remote.php/dav/uploads/{user}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &'static str)], root: &str) -> Quirks {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        Quirks::of(&headers.collect(), &Url::parse(root).unwrap())
    }

    #[test]
    fn servers_are_recognised_by_their_headers() {
        // As observed with Apache 2.4.
        let apache = of(
            &[
                ("dav", "<http://apache.org/dav/propset/fs/1>"),
                ("allow", "OPTIONS,GET,HEAD,POST,DELETE,TRACE,PROPFIND,PROPPATCH,COPY,MOVE"),
            ],
            "http://h/",
        );
        assert_eq!(apache.partial, Some(Partial::ContentRange));
        assert!(apache.capabilities().resume && apache.puts_whole);
        // nginx 1.22 with dav-ext 3.0.
        let allow = "GET,HEAD,PUT,DELETE,MKCOL,COPY,MOVE,PROPFIND,OPTIONS,LOCK,UNLOCK";
        let nginx = of(&[("dav", "1"), ("allow", allow)], "http://h/");
        assert!(nginx.puts_whole && !nginx.conditional && nginx.partial.is_none());
    }

    #[test]
    fn a_reverse_proxy_is_not_taken_for_the_server() {
        let quirks = of(&[("dav", "1, 2"), ("server", "nginx/1.25")], "http://h/dav/");
        assert_eq!(quirks, Quirks::unknown());
    }

    #[test]
    fn a_server_without_move_has_no_rename() {
        let quirks = of(&[("allow", "GET, HEAD, PUT, DELETE, OPTIONS")], "http://h/");
        assert!(!quirks.moves && !quirks.capabilities().rename);
    }

    #[test]
    fn chunks_for_nextcloud_go_to_the_uploads_of_the_user() {
        let dav = "1, 3, extended-mkcol, access-control, nextcloud-checksum-update, nc-calendar";
        let quirks = of(&[("dav", dav)], "https://h/cloud/remote.php/dav/files/me/Photos/");
        let directory = quirks.chunks.map(|url| url.path().to_owned());
        assert_eq!(directory.as_deref(), Some("/cloud/remote.php/dav/uploads/me/"));
    }
}
