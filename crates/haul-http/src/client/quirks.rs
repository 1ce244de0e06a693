//! What a server can do besides what every WebDAV server can, told from what it says of itself.
//!
//! Nothing is tried out that could do harm: a server that does not know `Content-Range` in a PUT
//! replaces a whole file by its part (rclone 1.60 does). So only what identifies itself is believed:
//!
//! | server | known by | partial writes | a PUT is whole or nothing | `If-None-Match: *` | times |
//! |---|---|---|---|---|---|
//! | Apache, mod_dav_fs | `DAV: <http://apache.org/dav/propset/fs/1>` | PUT with `Content-Range` | yes | yes | no |
//! | nginx, dav-ext | its constant `Allow` | no (400) | yes | no | no |
//! | Nextcloud, ownCloud | `/remote.php/` and DAV classes of theirs | chunks, see [`super::upload`] | yes | yes | `X-OC-Mtime`, `DAV:lastmodified` |
//! | haul | `Server: haul` | PATCH | yes | yes | `X-OC-Mtime`, `Win32LastModifiedTime` |
//! | SabreDAV | `DAV: sabredav-partialupdate` | PATCH | no | no | no |
//! | any other | | no | no | no | no |
//!
//! nginx-dav-ext lists no names that begin with a dot, so there a directory with nothing else in it is
//! taken for an empty one, and removed as such.
//!
//! The rows of Apache, nginx and rclone (which is "any other") are what version 2.4, 1.22 with
//! dav-ext 3.0 and 1.60 were seen to do; those of Nextcloud and SabreDAV are what their manuals say, and
//! no such server was asked.

use haul_storage::{Capabilities, DigestKind, KeptTimes, Medium, Writes};
use http::HeaderMap;
use http::header::{ALLOW, HeaderName, SERVER};

use crate::parse::Url;

const DAV: HeaderName = HeaderName::from_static("dav");

/// Bytes that are worth a request that writes a part of a file: the server opens the file for each.
const WRITE: u64 = 1 << 20;

/// Files up to this length are fetched and stored by one request.
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

/// What is known of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quirks {
    /// How parts are written, if they can be.
    pub partial: Option<Partial>,
    /// Where pieces of large files are put together (Nextcloud, ownCloud): a directory's URL.
    pub chunks: Option<Url>,
    /// Whether a PUT appears whole under its name or not at all.
    pub puts_whole: bool,
    /// Whether MKCOL says so when something is there (RFC 4918, 9.3). rclone does not.
    pub tells_made: bool,
    /// Whether a PUT can be made to replace nothing.
    pub conditional: bool,
    /// How times are set, if they can be.
    pub times: Option<Times>,
    /// Whether there are MOVE and COPY. Without them a file is put under its name directly.
    pub moves: bool,
    /// Whether it reports SHA-256 digests of files when asked (RFC 9530).
    pub digests: bool,
}

impl Quirks {
    /// A WebDAV server of which nothing is known.
    pub const fn unknown() -> Self {
        Self {
            partial: None,
            chunks: None,
            puts_whole: false,
            tells_made: false,
            conditional: false,
            times: None,
            moves: true,
            digests: false,
        }
    }

    /// From the answer to OPTIONS about `root`.
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
            (quirks.puts_whole, quirks.conditional, quirks.tells_made) = (true, true, true);
        } else if allow.starts_with("get,head,put,delete,mkcol,copy,move,propfind,options") {
            (quirks.puts_whole, quirks.tells_made) = (true, true);
        } else if is_own_cloud(&dav, root) {
            (quirks.puts_whole, quirks.conditional, quirks.tells_made) = (true, true, true);
            quirks.times = Some(Times::OwnCloud);
            quirks.chunks = chunks(root);
        } else if server == "haul" {
            (quirks.puts_whole, quirks.conditional, quirks.tells_made) = (true, true, true);
            quirks.times = Some(Times::Haul);
            quirks.digests = true;
        }
        // What is of class 1 has it (RFC 4918, 18.1). Plain servers say that they have no MOVE.
        quirks.moves = dav.split(',').any(|class| class.trim() == "1")
            || allow.is_empty()
            || allow.split(',').any(|method| method == "move");
        quirks
    }

    /// What a storage there can do.
    pub fn capabilities(&self) -> Capabilities {
        let parts = self.moves && self.partial.is_some();
        of_web(true).with(|can| {
            can.writes = if parts { Writes::AnyOrder } else { Writes::InOrder };
            can.rename = self.moves;
            can.server_copy = self.moves;
            can.resume = parts;
            can.pipelined_writes = parts;
            can.write_bytes = if parts { WRITE } else { 0 };
            can.times = self.times.is_some();
            can.digests = if self.digests { vec![DigestKind::Sha256] } else { Vec::new() };
        })
    }
}

/// From 1970 on, and as long as the year of an HTTP date has four digits.
pub const KEPT_TIMES: KeptTimes = KeptTimes::seconds(0, 253_402_300_799);

/// What a storage can do that is only read. `ranged`: parts of its files can be asked for.
pub fn of_web(ranged: bool) -> Capabilities {
    Capabilities::least(Medium::Link).with(|can| {
        can.ranged_reads = ranged;
        can.kept_times = KEPT_TIMES;
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

/// Where the pieces of a user's files go. Of `/remote.php/webdav/` the user is not known.
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
    fn what_identifies_itself_is_believed() {
        // As seen from Apache 2.4.
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
    fn a_server_before_others_is_not_taken_for_them() {
        let quirks = of(&[("dav", "1, 2"), ("server", "nginx/1.25")], "http://h/dav/");
        assert_eq!(quirks, Quirks::unknown());
    }

    #[test]
    fn a_server_that_has_no_move_is_written_to_directly() {
        let quirks = of(&[("allow", "GET, HEAD, PUT, DELETE, OPTIONS")], "http://h/");
        assert!(!quirks.moves && !quirks.capabilities().rename);
    }

    #[test]
    fn the_pieces_of_nextcloud_have_a_place_of_their_user() {
        let dav = "1, 3, extended-mkcol, access-control, nextcloud-checksum-update, nc-calendar";
        let quirks = of(&[("dav", dav)], "https://h/cloud/remote.php/dav/files/me/Photos/");
        let place = quirks.chunks.map(|url| url.path().to_owned());
        assert_eq!(place.as_deref(), Some("/cloud/remote.php/dav/uploads/me/"));
    }
}
