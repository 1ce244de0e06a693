//! PROPFIND: metadata of files, for programs (RFC 4918, section 9.1).
//!
//! The response is generated while it is sent, some entries at a time: a directory may be of any
//! size.

use std::io;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use dav_server::davpath::DavPath;
use futures_util::stream::unfold;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use quick_xml::escape::escape;
use rustix::fs::{FileType, OFlags, fstatvfs};
use rustix::io::Errno;

use super::body::Body;
use super::dates;
use super::described::Described;
use super::directory::{Entry, Links, Listing, below};
use super::limits;
use super::media_type;
use super::paths::link;
use super::refusal;
use super::share::Share;
use super::xml::{self, DAV, Malformed, Name};

/// Apache's namespace; davfs2 requests one property of it.
const APACHE: &str = "http://apache.org/dav/props/";

/// Properties returned when the request names none.
const USUAL: [&str; 8] = [
    "creationdate",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "resourcetype",
    "supportedlock",
];

/// Properties returned only on request: the quota of a directory, and whether a file is executable (Apache's).
const FURTHER: [(&str, &str); 3] =
    [(DAV, "quota-available-bytes"), (DAV, "quota-used-bytes"), (APACHE, "executable")];

/// The properties that a request wants.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// `USUAL`, dead properties, and these.
    All(Vec<Name>),
    /// The names of `USUAL`, `FURTHER` and dead properties.
    Names,
    /// Only these.
    These(Vec<Name>),
}

/// Handles a PROPFIND request with body `request`.
pub(super) async fn propfind(
    share: &Arc<Share>,
    path: &DavPath,
    headers: &HeaderMap,
    request: &[u8],
) -> Response<Body> {
    let Ok(wanted) = wanted(request) else { return refusal::status(StatusCode::BAD_REQUEST) };
    let (inside, name) = (Arc::clone(share), path.as_bytes().to_vec());
    let found = share.pool.run_short(move || find(&inside, &name)).await;
    let (described, quota) = match found {
        Ok(found) => found,
        Err(errno) => return refusal::status(refusal::of(errno)),
    };
    let depth = headers.get("depth").map(HeaderValue::as_bytes);
    let listing = match depth {
        Some(b"0") => None,
        _ if !described.is_directory() => None,
        Some(b"1") => match Listing::open(share, path.as_bytes().to_vec(), Links::Follow).await {
            Ok(listing) => Some(listing),
            Err(errno) => return refusal::status(refusal::of(errno)),
        },
        // A missing header means infinity.
        _ => return refusal::condition(StatusCode::FORBIDDEN, "propfind-finite-depth"),
    };
    let renderer = Renderer { share: Arc::clone(share), wanted, quota };
    let multistatus = Multistatus {
        renderer,
        path: path.as_bytes().to_vec(),
        stage: Stage::Head(Box::new(described), listing),
    };
    let mut response = Response::new(Body::stream(unfold(multistatus, Multistatus::next)));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    let head = response.headers_mut();
    let xml = HeaderValue::from_static("application/xml; charset=utf-8");
    head.insert(header::CONTENT_TYPE, xml);
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Bytes used and available on the file system.
#[derive(Debug, Clone, Copy)]
struct Quota {
    used: u64,
    available: u64,
}

fn find(share: &Share, path: &[u8]) -> Result<(Described, Option<Quota>), Errno> {
    let described = Described::new(&share.jail.stat(path, true)?);
    // A path with a trailing slash is resolved only if it is a directory, even without O_DIRECTORY.
    let quota = share.jail.resolve(path, OFlags::PATH).and_then(fstatvfs).ok().map(|found| Quota {
        used: found.f_blocks.saturating_sub(found.f_bfree).saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
    });
    Ok((described, quota))
}

fn wanted(request: &[u8]) -> Result<Wanted, Malformed> {
    if request.is_empty() {
        return Ok(Wanted::All(Vec::new()));
    }
    let root = xml::parse(request)?;
    if !root.name.is_dav("propfind") {
        return Err(Malformed);
    }
    let names = |local: &str| {
        let lists = root.elements().filter(|element| element.name.is_dav(local));
        lists
            .flat_map(|list| list.elements())
            .map(|element| element.name.clone())
            .collect::<Vec<_>>()
    };
    let has = |local: &str| root.elements().any(|element| element.name.is_dav(local));
    let wanted = match (has("prop"), has("allprop"), has("propname")) {
        (true, false, false) => Wanted::These(names("prop")),
        (false, true, false) => Wanted::All(names("include")),
        (false, false, true) => Wanted::Names,
        _ => return Err(Malformed),
    };
    match &wanted {
        Wanted::These(names) | Wanted::All(names)
            if names.len() > limits::PROPERTIES_OF_REQUEST =>
        {
            Err(Malformed)
        }
        _ => Ok(wanted),
    }
}

/// A response that is being generated.
struct Multistatus {
    renderer: Renderer,
    path: Vec<u8>,
    stage: Stage,
}

enum Stage {
    Head(Box<Described>, Option<Listing>),
    /// Entries that were read but not yet written, and the rest of the directory.
    Entries(IntoIter<Entry>, Listing),
    End,
}

impl Multistatus {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let mut text = String::new();
        self.stage = match self.stage {
            Stage::Head(described, listing) => {
                text.push_str("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n");
                self.renderer.render(&self.path, &described, &mut text);
                match listing {
                    Some(listing) => Stage::Entries(Vec::new().into_iter(), listing),
                    None => {
                        text.push_str(END);
                        Stage::End
                    }
                }
            }
            Stage::Entries(mut entries, mut listing) => {
                if entries.len() == 0 {
                    entries = match listing.next().await {
                        Ok(entries) => entries.into_iter(),
                        // Break off: a complete response without them would mean that the entries
                        // do not exist.
                        Err(errno) => {
                            self.stage = Stage::End;
                            return Some((Err(errno.into()), self));
                        }
                    };
                }
                if entries.len() == 0 {
                    text.push_str(END);
                    Stage::End
                } else {
                    for entry in entries.by_ref() {
                        let path = below(&self.path, &entry.name);
                        self.renderer.render(&path, &entry.described, &mut text);
                        if text.len() >= limits::PIECE {
                            break;
                        }
                    }
                    Stage::Entries(entries, listing)
                }
            }
            Stage::End => return None,
        };
        Some((Ok(text.into()), self))
    }
}

const END: &str = "</D:multistatus>\n";

struct Renderer {
    share: Arc<Share>,
    wanted: Wanted,
    quota: Option<Quota>,
}

impl Renderer {
    /// Appends the `response` element of one file.
    fn render(&self, path: &[u8], described: &Described, text: &mut String) {
        // Special files can be neither read nor listed.
        if !described.is_directory() && described.kind != FileType::RegularFile {
            return;
        }
        let mut set = self.share.properties.of(path);
        // A live property hides a dead one of the same name.
        set.retain(|name, _| self.live(name, path, described).is_none());
        let (mut known, mut unknown) = (String::new(), String::new());
        let named = |(namespace, local): (&str, &str)| Name {
            namespace: namespace.to_owned(),
            local: local.to_owned(),
        };
        let usual = || USUAL.into_iter().map(|local| named((DAV, local)));
        match &self.wanted {
            Wanted::Names => {
                let names = usual().chain(FURTHER.into_iter().map(named));
                let names = names.filter(|name| self.live(name, path, described).is_some());
                names.chain(set.keys().cloned()).for_each(|name| name.write("", &mut known));
            }
            Wanted::All(further) => {
                let further =
                    further.iter().filter(|name| !USUAL.iter().any(|local| name.is_dav(local)));
                for name in usual().chain(further.cloned()) {
                    if let Some(value) = self.live(&name, path, described) {
                        name.write(&value, &mut known);
                    }
                }
                known.extend(set.values().map(String::as_str));
            }
            Wanted::These(names) => {
                for name in names {
                    match (self.live(name, path, described), set.get(name)) {
                        (Some(value), _) => name.write(&value, &mut known),
                        (None, Some(element)) => known.push_str(element),
                        (None, None) => name.write("", &mut unknown),
                    }
                }
            }
        }
        text.extend(["<D:response><D:href>", &link(path, described.is_directory()), "</D:href>"]);
        if !known.is_empty() || unknown.is_empty() {
            propstat(StatusCode::OK, &known, text);
        }
        if !unknown.is_empty() {
            propstat(StatusCode::NOT_FOUND, &unknown, text);
        }
        text.push_str("</D:response>\n");
    }

    /// The content of a live property, one that the server computes.
    fn live(&self, name: &Name, path: &[u8], described: &Described) -> Option<String> {
        let is_directory = described.is_directory();
        if name.namespace == APACHE && name.local == "executable" && !is_directory {
            return Some(if described.is_executable { "T" } else { "F" }.to_owned());
        }
        if name.namespace != DAV {
            return None;
        }
        let value = match name.local.as_str() {
            "creationdate" => dates::iso(described.created),
            "getcontentlength" if !is_directory => described.size.to_string(),
            "getcontenttype" if is_directory => "httpd/unix-directory".to_owned(),
            "getcontenttype" => media_type::of(path).to_owned(),
            "getetag" if !is_directory => escape(described.etag()).into_owned(),
            "getlastmodified" => dates::http(described.modified),
            "lockdiscovery" => self.share.locks.described(path),
            "quota-available-bytes" if is_directory => self.quota?.available.to_string(),
            "quota-used-bytes" if is_directory => self.quota?.used.to_string(),
            "resourcetype" if is_directory => "<D:collection/>".to_owned(),
            "resourcetype" => String::new(),
            "supportedlock" if self.share.read_only => String::new(),
            "supportedlock" => ["exclusive", "shared"].map(lock_entry).concat(),
            _ => return None,
        };
        Some(value)
    }
}

fn lock_entry(scope: &str) -> String {
    format!(
        "<D:lockentry><D:lockscope><D:{scope}/></D:lockscope>\
         <D:locktype><D:write/></D:locktype></D:lockentry>"
    )
}

/// Appends a `propstat` element: properties (as XML) that share a status.
pub(super) fn propstat(status: StatusCode, properties: &str, text: &mut String) {
    let (code, words) = (status.as_u16(), status.canonical_reason().unwrap_or(""));
    text.push_str("<D:propstat><D:prop>");
    text.push_str(properties);
    text.push_str("</D:prop><D:status>HTTP/1.1 ");
    text.push_str(&format!("{code} {words}</D:status></D:propstat>"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_and_limited() {
        let parsed =
            |text: &str| wanted(format!("<propfind xmlns='DAV:'>{text}</propfind>").as_bytes());
        let etag = Name { namespace: DAV.to_owned(), local: "getetag".to_owned() };
        assert_eq!(wanted(b""), Ok(Wanted::All(Vec::new())));
        assert_eq!(parsed("<prop><getetag/></prop>"), Ok(Wanted::These(vec![etag.clone()])));
        assert_eq!(parsed("<allprop/><include><getetag/></include>"), Ok(Wanted::All(vec![etag])));
        assert_eq!(parsed("<x xmlns=''/><propname/>"), Ok(Wanted::Names));
        assert_eq!(parsed(""), Err(Malformed));
        assert_eq!(parsed("<prop/><propname/>"), Err(Malformed));
        assert_eq!(wanted(b"<propfind><propname/></propfind>"), Err(Malformed));
        let many = "<a/>".repeat(limits::PROPERTIES_OF_REQUEST + 1);
        assert_eq!(parsed(&format!("<prop>{many}</prop>")), Err(Malformed));
    }

    #[test]
    fn links_keep_every_byte() {
        assert_eq!(link(b"/a b/\xff&", false), "/a%20b/%FF%26");
        assert_eq!(link(b"/a", true), "/a/");
        assert_eq!(link(b"/", true), "/");
    }
}
