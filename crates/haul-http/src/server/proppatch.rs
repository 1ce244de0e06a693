//! PROPPATCH: sets modification times and dead properties (RFC 4918, section 9.2).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use dav_server::davpath::DavPath;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use rustix::fs::{FileType, OFlags, Timespec, Timestamps, UTIME_NOW, fstat, futimens};
use rustix::io::Errno;

use super::body::Body;
use super::dates;
use super::limits;
use super::paths::link;
use super::propfind::propstat;
use super::refusal;
use super::share::Share;
use super::xml::{self, DAV, Element, Malformed, Name};

/// Namespace of the properties that Windows sets on files it has written.
const MICROSOFT: &str = "urn:schemas-microsoft-com:";

/// What a request does to a property.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// Set the file's modification time.
    Time(SystemTime),
    /// Store a dead property, or remove it (`None`).
    Dead(Option<String>),
    /// Refused: a live property.
    Protected,
    /// Refused: the value cannot be parsed.
    Invalid,
}

/// Handles a PROPPATCH request with body `request`.
pub(super) async fn proppatch(
    share: &Arc<Share>,
    principal: &str,
    path: &DavPath,
    headers: &HeaderMap,
    request: &[u8],
) -> Response<Body> {
    let (inside, name) = (Arc::clone(share), path.as_bytes().to_vec());
    let found = share.pool.run_short(move || inside.jail.stat(&name, true)).await;
    let is_directory = match found {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        Err(errno) => return refusal::status(refusal::of(errno)),
    };
    if !share.locks.allows(path, principal, &tokens(headers)) {
        return refusal::status(StatusCode::LOCKED);
    }
    let Ok(changes) = changes(request) else { return refusal::status(StatusCode::BAD_REQUEST) };
    let statuses = match refused(&changes) {
        Some(statuses) => statuses,
        None => {
            let done = apply(share, path, &changes).await;
            vec![done.err().unwrap_or(StatusCode::OK); changes.len()]
        }
    };
    multistatus(&link(path.as_bytes(), is_directory), &changes, &statuses)
}

/// Lock tokens that the client submits: all URIs in angle brackets within parentheses of the `If`
/// header (section 10.4.2).
fn tokens(headers: &HeaderMap) -> Vec<String> {
    let conditions = headers.get_all("if").iter().filter_map(|value| value.to_str().ok());
    let lists = conditions.flat_map(|condition| condition.split('(').skip(1));
    let lists = lists.filter_map(|rest| rest.split(')').next());
    let tokens =
        lists.flat_map(|list| list.split('<').skip(1).filter_map(|rest| rest.split('>').next()));
    tokens.map(str::to_owned).collect()
}

fn changes(request: &[u8]) -> Result<Vec<(Name, Change)>, Malformed> {
    let root = xml::parse(request)?;
    if !root.name.is_dav("propertyupdate") {
        return Err(Malformed);
    }
    let mut changes = Vec::new();
    for update in root.elements() {
        let sets = update.name.is_dav("set");
        if !sets && !update.name.is_dav("remove") {
            continue;
        }
        let lists = update.elements().filter(|element| element.name.is_dav("prop"));
        for property in lists.flat_map(Element::elements) {
            changes.push((property.name.clone(), change(property, sets)));
        }
    }
    let is_valid = !changes.is_empty() && changes.len() <= limits::PROPERTIES_OF_REQUEST;
    if is_valid { Ok(changes) } else { Err(Malformed) }
}

fn change(property: &Element, sets: bool) -> Change {
    /// Live properties of RFC 4918 (section 15) and RFC 4331 that clients cannot set.
    const PROTECTED: [&str; 9] = [
        "creationdate",
        "getcontentlength",
        "getcontenttype",
        "getetag",
        "lockdiscovery",
        "quota-available-bytes",
        "quota-used-bytes",
        "resourcetype",
        "supportedlock",
    ];
    let Name { namespace, local } = &property.name;
    let is_time = namespace == DAV && local == "getlastmodified"
        || namespace == MICROSOFT && local == "Win32LastModifiedTime";
    match (is_time, sets) {
        (true, true) => {
            return dates::parsed(&property.text()).map_or(Change::Invalid, Change::Time);
        }
        (true, false) => return Change::Protected,
        (false, _) => {}
    }
    if namespace == DAV && PROTECTED.contains(&local.as_str()) {
        return Change::Protected;
    }
    let mut element = String::new();
    property.write(&mut element);
    Change::Dead(sets.then_some(element))
}

/// Statuses of all changes if one of them is refused: either all are applied, or none.
fn refused(changes: &[(Name, Change)]) -> Option<Vec<StatusCode>> {
    let status = |change: &Change| match change {
        Change::Protected => StatusCode::FORBIDDEN,
        Change::Invalid => StatusCode::CONFLICT,
        Change::Time(_) | Change::Dead(_) => StatusCode::FAILED_DEPENDENCY,
    };
    let statuses: Vec<_> = changes.iter().map(|(_, change)| status(change)).collect();
    let is_refused = statuses.iter().any(|status| *status != StatusCode::FAILED_DEPENDENCY);
    is_refused.then_some(statuses)
}

/// Applies all changes, or none. The time is set first, because it can be restored if the properties do
/// not fit.
async fn apply(
    share: &Arc<Share>,
    path: &DavPath,
    changes: &[(Name, Change)],
) -> Result<(), StatusCode> {
    let mut times = changes.iter().filter_map(|(_, change)| match change {
        Change::Time(time) => Some(*time),
        _ => None,
    });
    let dead = changes.iter().filter_map(|(name, change)| match change {
        Change::Dead(value) => Some((name.clone(), value.clone())),
        _ => None,
    });
    let dead: Vec<_> = dead.collect();
    let mut before = None;
    if let Some(time) = times.next_back() {
        let (inside, name) = (Arc::clone(share), path.as_bytes().to_vec());
        let done = share.pool.run_short(move || set_time(&inside, &name, time)).await;
        before = Some(done.map_err(refusal::of)?);
    }
    let stored = share.properties.change(path.as_bytes(), &dead);
    if let (Err(_), Some((file, times))) = (&stored, before) {
        // The first error is the one to report.
        let _ = share.pool.run_short(move || futimens(&file, &times)).await;
    }
    stored.map_err(|_| StatusCode::INSUFFICIENT_STORAGE)
}

/// Sets the modification time. Returns the file and its previous times.
fn set_time(share: &Share, path: &[u8], time: SystemTime) -> Result<(OwnedFd, Timestamps), Errno> {
    // The file must be opened: futimens fails on an O_PATH descriptor.
    let file = share.jail.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = fstat(&file)?;
    let at = |seconds: i64, nanos: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanos).unwrap_or(0),
    };
    let before = Timestamps {
        last_access: at(stat.st_atime, stat.st_atime_nsec),
        last_modification: at(stat.st_mtime, stat.st_mtime_nsec),
    };
    futimens(&file, &modified(time))?;
    Ok((file, before))
}

/// The arguments of futimens. The access time is set to now: file systems on libfuse 2 ignore a
/// request that sets only one of the two, and report success.
pub(super) fn modified(time: SystemTime) -> Timestamps {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let last_modification = Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(since.subsec_nanos()),
    };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }, last_modification }
}

fn multistatus(link: &str, changes: &[(Name, Change)], statuses: &[StatusCode]) -> Response<Body> {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n\
         <D:response><D:href>{link}</D:href>"
    );
    let mut different = statuses.to_vec();
    different.sort_unstable();
    different.dedup();
    for status in different {
        let mut names = String::new();
        for ((name, _), _) in changes.iter().zip(statuses).filter(|(_, other)| **other == status) {
            name.write("", &mut names);
        }
        propstat(status, &names, &mut text);
    }
    text.push_str("</D:response>\n</D:multistatus>\n");
    let mut response = Response::new(Body::text(text));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    let xml = HeaderValue::from_static("application/xml; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, xml);
    response
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn read(text: &str) -> Vec<Change> {
        let text = format!(
            "<D:propertyupdate xmlns:D='DAV:' xmlns:Z='urn:schemas-microsoft-com:'>{text}\
             </D:propertyupdate>"
        );
        changes(text.as_bytes()).unwrap().into_iter().map(|(_, change)| change).collect()
    }

    #[test]
    fn times_can_be_set_and_live_properties_are_protected() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let time = dates::parsed(date).unwrap();
        let set = format!(
            "<D:set><D:prop><D:getlastmodified>{date}</D:getlastmodified>\
             <Z:Win32LastModifiedTime>{date}</Z:Win32LastModifiedTime><D:getetag>x</D:getetag>\
             <D:getlastmodified/><q>1</q></D:prop></D:set><D:remove><D:prop><q/></D:prop></D:remove>"
        );
        let changes = read(&set);
        assert_eq!(changes[..2], [Change::Time(time), Change::Time(time)]);
        assert_eq!(changes[2..4], [Change::Protected, Change::Invalid]);
        assert_eq!(changes[4..], [Change::Dead(Some("<q>1</q>".to_owned())), Change::Dead(None)]);
    }

    #[tokio::test]
    async fn if_one_change_fails_none_is_applied() {
        let directory = tempfile::tempdir().unwrap();
        let share = Arc::new(Share::open(directory.path(), false).unwrap());
        let date = dates::parsed("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let name = |local: &str| Name { namespace: String::new(), local: local.to_owned() };
        let changes = |value: &str| {
            let value = Change::Dead(Some(value.to_owned()));
            [(name("color"), value), (name("time"), Change::Time(date))]
        };
        // A socket cannot be opened, so its time cannot be set.
        let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        let path = DavPath::new("/socket").unwrap();
        apply(&share, &path, &changes("red")).await.unwrap_err();
        assert!(share.properties.of(b"/socket").is_empty());
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let time = || fs::metadata(&file).unwrap().modified().unwrap();
        let (before, path) = (time(), DavPath::new("/file").unwrap());
        let too_long = "x".repeat(limits::PROPERTIES);
        let outcome = apply(&share, &path, &changes(&too_long)).await;
        assert_eq!(outcome, Err(StatusCode::INSUFFICIENT_STORAGE));
        assert!(share.properties.of(b"/file").is_empty());
        assert_eq!(time(), before);
        apply(&share, &path, &changes("red")).await.unwrap();
        assert_eq!(share.properties.of(b"/file").len(), 1);
        assert_eq!(time(), date);
    }

    #[test]
    fn lock_tokens_are_taken_from_the_parentheses() {
        let mut headers = HeaderMap::new();
        let value = "<http://host/a> (<urn:uuid:1> [\"tag\"]) (Not <DAV:no-lock>)";
        headers.insert("if", value.parse().unwrap());
        assert_eq!(tokens(&headers), ["urn:uuid:1", "DAV:no-lock"]);
    }
}
