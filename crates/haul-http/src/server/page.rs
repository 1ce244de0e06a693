//! The HTML page of a directory: no scripts, no external resources, readable on a phone.
//!
//! Names are bytes. The displayed name is lossy, the link has every byte.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;
use dav_server::davpath::DavPath;
use haul_storage::is_part_name;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response};
use quick_xml::escape::escape;

use super::body::Body;
use super::dates;
use super::directory::{Entry, Links, Listing};
use super::limits;
use super::paths::encoded_name;
use super::refusal;
use super::share::Share;

/// The style sheet.
const STYLE: &str = include_str!("page.css");

/// The content security policy: a browser may only display the page, in this style. Should a name
/// become markup after all, it can neither load nor run anything.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = BASE64.encode(digest(&SHA256, STYLE.as_bytes()).as_ref());
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// Returns the page of a directory.
pub(super) async fn show(share: &Arc<Share>, method: &Method, path: &DavPath) -> Response<Body> {
    let (entries, is_all) = match entries(share, path.as_bytes(), limits::PAGE).await {
        Ok(found) => found,
        Err(errno) => return refusal::status(refusal::of(errno)),
    };
    let page = page(path.as_bytes(), &entries, is_all);
    let length = HeaderValue::from(page.len());
    let body = if method == Method::HEAD { Body::empty() } else { Body::text(page) };
    let mut response = Response::new(body);
    let mut set = |name: HeaderName, value: &'static str| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(header::CACHE_CONTROL, "no-cache");
    if let Ok(policy) = HeaderValue::from_str(&POLICY) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    response
}

/// Entries of the directory, directories first, each group by name, and whether they are complete. If
/// not, there are at least `most`. Part files are omitted.
async fn entries(
    share: &Arc<Share>,
    path: &[u8],
    most: usize,
) -> rustix::io::Result<(Vec<Entry>, bool)> {
    let mut listing = Listing::open(share, path.to_vec(), Links::Follow).await?;
    let mut entries = Vec::new();
    let is_all = loop {
        let some = listing.next().await?;
        if some.is_empty() {
            break true;
        }
        let mut shown = some.into_iter().filter(|entry| !is_part_name(&entry.name)).peekable();
        // A page that is full may be complete nevertheless.
        if entries.len() >= most && shown.peek().is_some() {
            break false;
        }
        entries.extend(shown);
    };
    entries.sort_by_cached_key(|entry| {
        let shown = String::from_utf8_lossy(&entry.name).to_lowercase();
        (!entry.described.is_directory(), shown, entry.name.clone())
    });
    Ok((entries, is_all))
}

fn page(path: &[u8], entries: &[Entry], is_all: bool) -> String {
    let components: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()).collect();
    let name = components.last().map_or_else(|| "/".to_owned(), |name| text(name));
    // Programs parse a page with this title as a listing, so only a complete one may have it.
    let title = if is_all {
        let names = components.iter().map(|component| text(component) + "/");
        format!("Index of /{}", names.collect::<String>())
    } else {
        name
    };
    let mut page = String::with_capacity(2048 + entries.len() * 200);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    breadcrumb(&mut page, &components);
    page.push_str(
        "<table>\n<thead><tr><th scope=\"col\">Name</th><th scope=\"col\" class=\"size\">Size</th>\
         <th scope=\"col\" class=\"date\">Modified (UTC)</th></tr></thead>\n<tbody>\n",
    );
    for entry in entries {
        row(&mut page, entry);
    }
    page.push_str("</tbody>\n</table>\n");
    page.push_str(&match (entries.len(), is_all) {
        (0, _) => "<p>This directory is empty.</p>\n".to_owned(),
        (_, true) => String::new(),
        (shown, false) => format!("<p>Only {shown} entries are shown.</p>\n"),
    });
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// The path from the root; each component but the last is a link.
fn breadcrumb(page: &mut String, components: &[&[u8]]) {
    page.push_str("<nav aria-label=\"Path\"><h1>");
    let mut link = String::from("/");
    let top = "<span aria-hidden=\"true\">⌂</span><span class=\"told\">top</span>";
    if components.is_empty() {
        page.push_str(top);
    } else {
        let _ = write!(page, "<a href=\"/\">{top}</a>");
    }
    for (at, component) in components.iter().enumerate() {
        let _ = write!(link, "{}/", encoded_name(component));
        let name = text(component);
        page.push_str("<span class=\"slash\">/</span>");
        let _ = if at + 1 == components.len() {
            write!(page, "<span aria-current=\"page\">{name}</span>")
        } else {
            write!(page, "<a href=\"{link}\">{name}</a>")
        };
    }
    page.push_str("</h1></nav>\n");
}

fn row(page: &mut String, entry: &Entry) {
    let (link, name) = (encoded_name(&entry.name), text(&entry.name));
    let date = date(entry.described.modified);
    let exact = dates::iso(entry.described.modified);
    // `./` because a name may look like a URL with a scheme.
    let _ = if entry.described.is_directory() {
        writeln!(
            page,
            "<tr class=\"directory\"><td class=\"name\"><a href=\"./{link}/\">{name}/</a></td>\
             <td class=\"size\"></td><td class=\"date\">{date}</td></tr>"
        )
    } else {
        let (size, bytes) = (size(entry.described.size), entry.described.size);
        writeln!(
            page,
            "<tr><td class=\"name\"><a href=\"./{link}\">{name}</a></td>\
             <td class=\"size\" data-size=\"{bytes}\" title=\"{bytes} bytes\">{size}</td>\
             <td class=\"date\"><time datetime=\"{exact}\">{date}</time></td></tr>"
        )
    };
}

/// The name for display. Control characters and those that embed, override or isolate a direction of text
/// become U+FFFD.
fn text(name: &[u8]) -> String {
    let shown = |character: char| match character {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        control if control.is_control() => '\u{fffd}',
        other => other,
    };
    let shown: String = String::from_utf8_lossy(name).chars().map(shown).collect();
    // HTML before version 5 has no entity for the apostrophe.
    escape(shown).replace("&apos;", "&#39;")
}

/// A size such as `1.5 KiB` or `1023 MiB`, in powers of 1024.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 {
        tenths /= 1024;
        unit += 1;
    }
    let unit = UNITS[unit];
    if tenths < 1000 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", tenths / 10)
    }
}

/// `2026-01-31 12:34`, in UTC.
fn date(time: SystemTime) -> String {
    // Without seconds.
    dates::iso(time).get(..16).map_or_else(String::new, |iso| iso.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_links_keep_every_byte() {
        assert_eq!(text(b"<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(encoded_name(b"<%2f?#\xff \"'"), "%3C%252f%3F%23%FF%20%22%27");
        assert_eq!(text(b"a\xffb\n"), "a\u{fffd}b\u{fffd}");
        assert_eq!(text("gpj\u{202e}.exe".as_bytes()), "gpj\u{fffd}.exe");
    }

    /// Clients refuse an incomplete listing.
    #[tokio::test]
    async fn a_full_page_is_complete_if_nothing_follows() {
        let directory = tempfile::tempdir().unwrap();
        let share = Arc::new(Share::open(directory.path(), false).unwrap());
        let write = |name: &str| std::fs::write(directory.path().join(name), "").unwrap();
        (0..limits::ENTRIES).for_each(|number| write(&number.to_string()));
        write(".x.haul-part");
        let (found, is_all) = entries(&share, b"/", limits::ENTRIES).await.unwrap();
        assert_eq!((found.len(), is_all), (limits::ENTRIES, true));
        write("more");
        let (found, is_all) = entries(&share, b"/", 1).await.unwrap();
        assert!(found.len() <= limits::ENTRIES && !is_all, "{}", found.len());
    }

    #[test]
    fn sizes_are_short() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 30) - 1, "1023 MiB"),
            (u64::MAX, "15.9 EiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn the_breadcrumb_links_a_parent_but_not_the_directory_itself() {
        let page = page(b"/a b/<c>/", &[], true);
        assert!(page.contains("<a href=\"/a%20b/\">a b</a>"), "{page}");
        assert!(page.contains("<span aria-current=\"page\">&lt;c&gt;</span>"), "{page}");
        assert!(page.contains("This directory is empty."), "{page}");
    }
}
