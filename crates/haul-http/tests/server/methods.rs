//! PROPFIND, PROPPATCH, MKCOL, DELETE, COPY, MOVE, LOCK, OPTIONS.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::site::Site;

/// A request for an exclusive lock.
const LOCK: &str = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/>\
                    </locktype></lockinfo>";

fn propfind(site: &Site, path: &str, depth: &str, body: &str) -> (u16, String) {
    let depth = format!("Depth: {depth}");
    let response = site.send(&format!("PROPFIND {path}"), &[&depth], body.as_bytes());
    (response.status, response.text())
}

fn proppatch(site: &Site, path: &str, set: &str) -> String {
    let body = format!(
        "<D:propertyupdate xmlns:D=\"DAV:\" xmlns:Z=\"urn:schemas-microsoft-com:\"><D:set><D:prop>{set}\
         </D:prop></D:set></D:propertyupdate>"
    );
    let response = site.send(&format!("PROPPATCH {path}"), &[], body.as_bytes());
    assert_eq!(response.status, 207, "{}", response.text());
    response.text()
}

#[test]
fn options_and_allow_list_the_methods() {
    let site = Site::start();
    let response = site.send("OPTIONS /", &[], b"");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("dav"), Some("1, 2, 3, sabredav-partialupdate"));
    assert!(response.header("allow").unwrap().contains("PATCH"));
    assert_eq!(site.send("OPTIONS *", &[], b"").status, 200);
    let unknown = site.send("BREW /", &[], b"");
    assert_eq!(unknown.status, 405);
    assert!(unknown.header("allow").unwrap().contains("GET"));
}

#[test]
fn propfind_describes_a_directory_and_its_entries() {
    let site = Site::start();
    site.write("a & b/file.txt", "content");
    let (status, text) = propfind(&site, "/a%20%26%20b", "1", "");
    assert_eq!(status, 207);
    for expected in [
        "<D:href>/a%20%26%20b/</D:href>",
        "<D:href>/a%20%26%20b/file.txt</D:href>",
        "<D:resourcetype><D:collection/></D:resourcetype>",
        "<D:getcontentlength>7</D:getcontentlength>",
        "<D:getcontenttype>text/plain; charset=utf-8</D:getcontenttype>",
        "<D:resourcetype/>",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let etag = site.get("/a%20%26%20b/file.txt").header("etag").unwrap().replace('"', "&quot;");
    assert!(text.contains(&format!("<D:getetag>{etag}</D:getetag>")), "{text}");
}

#[test]
fn missing_properties_are_reported_as_not_found() {
    let site = Site::start();
    site.write("file", "content");
    let body = "<propfind xmlns='DAV:'><prop><getcontentlength/><x xmlns='urn:y'/>\
                <quota-available-bytes/></prop></propfind>";
    let (_, text) = propfind(&site, "/file", "0", body);
    let (known, unknown) = text.split_once("HTTP/1.1 200 OK").unwrap();
    assert!(known.contains("getcontentlength>7<"), "{text}");
    assert!(unknown.contains("<x:x xmlns:x=\"urn:y\"/><D:quota-available-bytes/>"), "{text}");
    assert!(unknown.contains("HTTP/1.1 404 Not Found"), "{text}");
    let (_, text) = propfind(&site, "/", "0", body);
    let (known, _) = text.split_once("HTTP/1.1 200 OK").unwrap();
    let available = known.split("<D:quota-available-bytes>").nth(1).unwrap().split('<').next();
    assert!(available.unwrap().parse::<u64>().unwrap() > 0, "{text}");
}

/// Formerly, the names lacked the quota of a directory, and whether a file is executable.
#[test]
fn the_names_of_properties_are_those_that_can_be_requested() {
    const APACHE: &str = "http://apache.org/dav/props/";
    let site = Site::start();
    site.write("file", "content");
    let set = format!(
        "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><executable xmlns='{APACHE}'>T</executable>\
         <color xmlns='urn:y'>red</color></D:prop></D:set></D:propertyupdate>"
    );
    let all = format!(
        "<propfind xmlns='DAV:'><prop><creationdate/><getcontentlength/><getcontenttype/><getetag/>\
         <getlastmodified/><lockdiscovery/><quota-available-bytes/><quota-used-bytes/>\
         <resourcetype/><supportedlock/><executable xmlns='{APACHE}'/><color xmlns='urn:y'/>\
         </prop></propfind>"
    );
    let names = |text: &str| {
        let elements = text.split('<').filter(|element| !element.starts_with('/'));
        let names = elements.map(|element| element.split([' ', '/', '>']).next().unwrap());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names
    };
    for path in ["/", "/file"] {
        assert_eq!(site.send(&format!("PROPPATCH {path}"), &[], set.as_bytes()).status, 207);
        let named = "<propfind xmlns='DAV:'><propname/></propfind>";
        let (_, named) = propfind(&site, path, "0", named);
        let (_, requested) = propfind(&site, path, "0", &all);
        // Without the elements in the properties.
        let (found, _) = requested.split_once("HTTP/1.1 200 OK").unwrap();
        let (named, _) = named.split_once("HTTP/1.1 200 OK").unwrap();
        let inside = ["D:collection", "D:lockentry", "D:lockscope", "D:locktype"];
        let inside = [&inside[..], &["D:exclusive", "D:shared", "D:write"]].concat();
        let mut found = names(found);
        found.retain(|name| !inside.contains(&name.as_str()));
        assert_eq!(names(named), found, "{path}");
        assert!(named.contains("executable") && named.contains("color"), "{named}");
    }
}

#[test]
fn propfind_of_infinite_depth_is_refused() {
    let site = Site::start();
    site.write("file", "");
    for headers in [&["Depth: infinity"][..], &[]] {
        let response = site.send("PROPFIND /", headers, b"");
        assert_eq!(response.status, 403);
        assert!(response.text().contains("propfind-finite-depth"), "{}", response.text());
    }
    assert_eq!(propfind(&site, "/file", "infinity", "").0, 207, "a file is no tree");
}

#[test]
fn propfind_of_a_large_directory_is_complete() {
    let site = Site::start();
    for number in 0..1500 {
        site.write(&format!("many/{number}"), "");
    }
    let (_, text) = propfind(&site, "/many/", "1", "");
    assert_eq!(text.matches("<D:response>").count(), 1501);
    assert!(text.ends_with("</D:multistatus>\n"));
}

#[test]
fn harmful_xml_is_refused() {
    let site = Site::start();
    let deep =
        format!("<propfind xmlns='DAV:'>{}{}</propfind>", "<a>".repeat(9000), "</a>".repeat(9000));
    let long = format!("<propfind xmlns='DAV:'><allprop/>{}</propfind>", " ".repeat(70_000));
    let entity = "<!DOCTYPE a [<!ENTITY x 'y'>]><propfind xmlns='DAV:'><allprop/>&x;</propfind>";
    for (body, expected) in [(&deep as &str, 400), (&long, 413), (entity, 400), ("<a", 400)] {
        for method in ["PROPFIND", "PROPPATCH", "LOCK"] {
            let status = site.send(&format!("{method} /"), &["Depth: 0"], body.as_bytes()).status;
            assert_eq!(status, expected, "{method}");
        }
    }
    assert_eq!(propfind(&site, "/", "0", "").0, 207, "it still serves");
}

#[test]
fn times_can_be_set_by_either_property() {
    let site = Site::start();
    site.write("file", "");
    let time = || fs::metadata(site.path("file")).unwrap().mtime();
    let set = "<D:getlastmodified>Fri, 13 Feb 2009 23:31:30 GMT</D:getlastmodified>";
    assert!(proppatch(&site, "/file", set).contains("HTTP/1.1 200 OK"));
    assert_eq!(time(), 1_234_567_890);
    let windows = "<Z:Win32CreationTime>Fri, 13 Feb 2009 23:31:31 GMT</Z:Win32CreationTime>\
                   <Z:Win32LastModifiedTime>Fri, 13 Feb 2009 23:31:31 GMT</Z:Win32LastModifiedTime>\
                   <Z:Win32FileAttributes>00000020</Z:Win32FileAttributes>";
    assert!(proppatch(&site, "/file", windows).contains("HTTP/1.1 200 OK"));
    assert_eq!(time(), 1_234_567_891);
    let refused = proppatch(&site, "/file", &format!("{set}<D:getetag>x</D:getetag>"));
    assert!(refused.contains("HTTP/1.1 403") && refused.contains("HTTP/1.1 424"), "{refused}");
    assert_eq!(time(), 1_234_567_891, "all or nothing");
}

#[test]
fn properties_survive_puts_copies_and_moves() {
    let site = Site::start();
    site.write("a/file", "");
    proppatch(&site, "/a/file", "<color xmlns=\"urn:c\">red &amp; <b>blue</b></color>");
    let expected =
        "<x:color xmlns:x=\"urn:c\">red &amp; <x:b xmlns:x=\"urn:c\">blue</x:b></x:color>";
    assert!(propfind(&site, "/a/file", "0", "").1.contains(expected));
    site.put("/a/file", &[], b"new");
    site.send("COPY /a", &["Destination: /b"], b"");
    site.send("MOVE /a", &["Destination: /c"], b"");
    for path in ["/b/file", "/c/file"] {
        assert!(propfind(&site, path, "0", "").1.contains(expected), "{path}");
    }
    site.send("DELETE /b", &[], b"");
    site.write("b/file", "");
    assert!(!propfind(&site, "/b/file", "0", "").1.contains("color"));
}

/// Regression: properties of files that were not copied were stored, and those of files that stayed were dropped.
#[test]
fn a_shallow_copy_takes_only_the_properties_of_the_directory() {
    let site = Site::start();
    site.write("a/file", "");
    site.write("old/kept", "");
    for path in ["/a", "/a/file", "/old/kept"] {
        proppatch(&site, path, "<color xmlns=\"urn:c\">crimson</color>");
    }
    for (to, status) in [("/new", 201), ("/old", 204)] {
        let copied = site.send("COPY /a", &[&format!("Destination: {to}"), "Depth: 0"], b"");
        assert_eq!(copied.status, status, "{to}");
    }
    site.write("new/file", "");
    let paths = [("/new", true), ("/new/file", false), ("/old", true), ("/old/kept", true)];
    for (path, has_color) in paths {
        let described = propfind(&site, path, "0", "").1;
        assert_eq!(described.contains("crimson"), has_color, "{path}");
    }
}

#[test]
fn mkcol_creates_one_directory_at_a_time() {
    let site = Site::start();
    let make = |path: &str| site.send(&format!("MKCOL {path}"), &[], b"").status;
    assert_eq!(make("/a/"), 201);
    assert_eq!(make("/a"), 405);
    assert_eq!(make("/x/y"), 409);
    assert_eq!(make("/"), 405);
    site.write("file", "");
    assert_eq!(make("/file"), 405);
    assert_eq!(make("/file/x"), 409);
    assert_eq!(site.send("MKCOL /b", &["Content-Type: text/plain"], b"body").status, 415);
    assert_eq!(site.names(), ["a", "file"]);
}

#[test]
fn files_are_copied_and_moved_with_times_and_subtrees() {
    let site = Site::start();
    site.write("file", "content");
    site.write("other", "old");
    fs::File::options()
        .write(true)
        .open(site.path("file"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_234_567_890))
        .unwrap();
    let send = |method: &str, from: &str, headers: &[&str]| {
        site.send(&format!("{method} {from}"), headers, b"").status
    };
    assert_eq!(send("COPY", "/file", &["Destination: /other", "Overwrite: F"]), 412);
    assert_eq!(site.read("other"), "old");
    assert_eq!(send("COPY", "/file", &["Destination: /other"]), 204);
    assert_eq!(site.read("other"), "content");
    assert_eq!(fs::metadata(site.path("other")).unwrap().mtime(), 1_234_567_890);
    assert_eq!(send("COPY", "/file", &["Destination: /none/file"]), 409);
    assert_eq!(send("MOVE", "/file", &["Destination: /new"]), 201);
    assert_eq!(send("MOVE", "/file", &["Destination: /new"]), 404);
    assert_eq!(send("MOVE", "/new", &[]), 400);
    assert_eq!(site.names(), ["new", "other"]);
    site.write("tree/a/b", "deep");
    assert_eq!(send("COPY", "/tree", &["Destination: /copy"]), 201);
    assert_eq!(site.read("copy/a/b"), "deep");
    assert_eq!(send("COPY", "/tree", &["Destination: /flat", "Depth: 0"]), 201);
    assert_eq!(fs::read_dir(site.path("flat")).unwrap().count(), 0);
}

#[test]
fn a_move_replaces_only_the_version_of_its_condition() {
    let site = Site::start();
    site.write("file", "old");
    let etag = site.get("/file").header("etag").unwrap().to_owned();
    let tagged = |tag: &str| format!("If: <http://{}/file> ([{tag}])", site.authority());
    let moved = |condition: &str| {
        site.write("new", "new");
        site.send("MOVE /new", &["Destination: /file", condition], b"").status
    };
    assert_eq!(moved(&tagged("\"other\"")), 412);
    assert_eq!(moved(&tagged(&format!("W/{etag}"))), 412);
    // `If-Match` is about the source.
    assert_eq!(moved(&format!("If-Match: {etag}")), 412);
    assert_eq!((site.read("file"), site.read("new")), ("old".to_owned(), "new".to_owned()));
    assert_eq!(moved(&tagged(&etag)), 204);
    assert_eq!((site.read("file"), site.names()), ("new".to_owned(), vec!["file".to_owned()]));
    assert_eq!(moved(&tagged(&etag)), 412);
    fs::remove_file(site.path("file")).unwrap();
    assert_eq!(moved(&tagged(&etag)), 412);
    assert_eq!(site.names(), ["new"]);
}

#[test]
fn a_file_replaced_by_move_is_never_missing() {
    let site = Site::start();
    site.write("file", "old");
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..300 {
                assert_eq!(site.get("/file").status, 200);
            }
        });
        while !reader.is_finished() {
            site.write("part", "new");
            assert_eq!(site.send("MOVE /part", &["Destination: /file"], b"").status, 204);
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_locked_file_changes_only_with_the_token() {
    let site = Site::start();
    site.write("file", "old");
    let body = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype>\
                <owner><href>me &amp; you</href></owner></lockinfo>";
    let locked = site.send("LOCK /file", &["Timeout: Second-100"], body.as_bytes());
    assert_eq!(locked.status, 200, "{}", locked.text());
    let token = locked.header("lock-token").unwrap().to_owned();
    assert_eq!(site.put("/file", &[], b"new").status, 423);
    assert_eq!(site.send("DELETE /file", &[], b"").status, 423);
    assert_eq!(site.send("MOVE /file", &["Destination: /x"], b"").status, 423);
    let set =
        "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><a/></D:prop></D:set></D:propertyupdate>";
    assert_eq!(site.send("PROPPATCH /file", &[], set.as_bytes()).status, 423);
    let described = propfind(&site, "/file", "0", "").1;
    assert!(described.contains("me &amp; you") && described.contains("Second-100"), "{described}");
    assert_eq!(site.put("/file", &[&format!("If: ({token})")], b"new").status, 204);
    // Formerly, only the first header field was read.
    let fields = ["If: (<urn:other>)", &format!("If: ({token})")];
    assert_ne!(site.send("PROPPATCH /file", &fields, set.as_bytes()).status, 423);
    assert_eq!(site.send("UNLOCK /file", &[&format!("Lock-Token: {token}")], b"").status, 204);
    assert_eq!(site.put("/file", &[], b"newer").status, 204);
    assert_eq!(site.put("/file", &[&format!("If: ({token})")], b"late").status, 412);
    assert_eq!(site.send("LOCK /made", &[], body.as_bytes()).status, 201);
    assert_eq!(site.read("made"), "");
}

#[test]
fn read_only_refuses_every_change() {
    let site = Site::with(|builder| builder.read_only(true));
    site.write("file", "old");
    for method in ["PUT", "PATCH", "DELETE", "MKCOL", "COPY", "MOVE", "PROPPATCH", "LOCK", "UNLOCK"]
    {
        let response = site.send(&format!("{method} /file"), &["Destination: /x"], b"body");
        assert_eq!(response.status, 403, "{method}");
    }
    assert_eq!(site.get("/file").text(), "old");
    assert_eq!(propfind(&site, "/", "1", "").0, 207);
    let allowed = site.send("OPTIONS /", &[], b"");
    assert_eq!(allowed.header("allow"), Some("OPTIONS, GET, HEAD, PROPFIND"));
    assert_eq!(site.names(), ["file"]);
}

#[test]
fn a_directory_moved_over_another_replaces_it() {
    let site = Site::start();
    site.write("new/a", "new");
    site.write("old/b/c", "old");
    site.write("file", "file");
    assert_eq!(site.send("MOVE /new/", &["Destination: /old/"], b"").status, 204);
    assert_eq!(
        (site.read("old/a"), site.names()),
        ("new".to_owned(), vec!["file".to_owned(), "old".to_owned()])
    );
    assert!(!site.has("old/b"));
    assert_eq!(site.send("MOVE /file", &["Destination: /old"], b"").status, 204);
    assert_eq!((site.read("old"), site.names()), ("file".to_owned(), vec!["old".to_owned()]));
}

/// Regression: the copy doubled the directories at each level until the disk was full.
#[test]
fn a_copy_does_not_follow_links_to_itself() {
    let site = Site::start();
    site.write("a/file", "content");
    for link in ["x", "y"] {
        std::os::unix::fs::symlink(".", site.path("a").join(link)).unwrap();
    }
    let copied = site.send("COPY /a/", &["Destination: /b/"], b"");
    assert_eq!(copied.status, 201, "{}", copied.head);
    assert_eq!(site.read("b/file"), "content");
    for link in ["b/x", "b/y"] {
        assert_eq!(fs::read_link(site.path(link)).unwrap().to_str(), Some("."));
    }
    // Links in a path that the request itself names are followed.
    assert_eq!(site.send("COPY /b/x/file", &["Destination: /b/y/new"], b"").status, 201);
    assert_eq!(site.read("b/new"), "content");
}

#[test]
fn a_copy_replaces_a_directory_only_when_complete() {
    let site = Site::start();
    site.write("new/a", "new a");
    site.write("new/deep/b", "new b");
    site.write("old/a", "old a");
    site.write("old/kept", "old");
    let copy = |from: &str, to: &str| {
        site.send(&format!("COPY {from}"), &[&format!("Destination: {to}")], b"").status
    };
    // The socket cannot be read: the old directory remains unchanged.
    std::os::unix::net::UnixListener::bind(site.path("new/deep/socket")).unwrap();
    let lock = |path: &str| {
        let locked = site.send(&format!("LOCK {path}"), &[], LOCK.as_bytes());
        assert_eq!(locked.status, 200, "{}", locked.text());
        locked.header("lock-token").unwrap().to_owned()
    };
    let token = lock("/old/a");
    let held = format!("If: <{}> ({token})", site.url("old/a"));
    let copied = site.send("COPY /new/", &["Destination: /old/", &held], b"").status;
    assert_eq!(copied, 207);
    // Its locks remain, too.
    assert_eq!(site.put("/old/a", &[], b"other").status, 423);
    let unlocked = site.send("UNLOCK /old/a", &[&format!("Lock-Token: {token}")], b"").status;
    assert_eq!(unlocked, 204);
    assert_eq!((site.read("old/a"), site.read("old/kept")), ("old a".into(), "old".into()));
    fs::remove_file(site.path("new/deep/socket")).unwrap();
    assert_eq!(copy("/new/", "/old/"), 204);
    assert_eq!((site.read("old/a"), site.read("old/deep/b")), ("new a".into(), "new b".into()));
    assert!(!site.path("old/kept").exists());
    site.write("file", "file");
    assert_eq!(copy("/new", "/file"), 204);
    assert_eq!(site.read("file/deep/b"), "new b");
    site.write("single", "single");
    let shallow = site.send("COPY /single", &["Destination: /old", "Depth: 0"], b"").status;
    assert_eq!(shallow, 204);
    assert_eq!(site.read("old"), "single");
    fs::remove_dir_all(site.path("file")).unwrap();
    fs::create_dir(site.path("empty")).unwrap();
    std::os::unix::fs::symlink("empty", site.path("file")).unwrap();
    let shallow = site.send("COPY /new/", &["Destination: /file", "Depth: 0"], b"").status;
    assert!((200..300).contains(&shallow), "{shallow}");
    assert!(fs::symlink_metadata(site.path("file")).unwrap().is_symlink());
    let left = || fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let begun = Instant::now();
    // The leftovers are removed after the response.
    while left().count() > 5 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", left().collect::<Vec<_>>());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_directory_locked_during_a_copy_over_it_stays() {
    // Whether the lock comes in time depends on the machine.
    for many in [3000, 6000, 12_000, 24_000] {
        let site = Site::start();
        (0..many).for_each(|at| site.write(&format!("new/{at}"), "new"));
        site.write("old/a", "old");
        let copied = thread::scope(|scope| {
            let copy = || site.send("COPY /new/", &["Destination: /old/"], b"").status;
            let copying = scope.spawn(copy);
            while site.names().len() == 2 && !copying.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            let locked = site.send("LOCK /old/a", &[], LOCK.as_bytes());
            (copying.join().unwrap(), locked)
        });
        if let (423, locked) = &copied {
            assert_eq!((locked.status, site.read("old/a")), (200, "old".to_owned()));
            let held = format!("If: ({})", locked.header("lock-token").unwrap());
            assert_eq!(site.put("/old/a", &[], b"other").status, 423);
            assert_eq!(site.put("/old/a", &[&held], b"mine").status, 204);
            return;
        }
        assert_eq!(copied.0, 204);
    }
    panic!("every copy was faster than the lock");
}

#[test]
fn the_memory_of_locks_is_bounded() {
    let site = Site::start();
    site.write("file", "");
    let info = |owner: &str| {
        format!(
            "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/>\
             </D:locktype><D:owner>{owner}</D:owner></D:lockinfo>"
        )
    };
    let lock = |owner: &str| site.send("LOCK /file", &["Depth: 0"], info(owner).as_bytes()).status;
    let namespaces: String = (0..100).map(|at| format!(" xmlns:n{at}=\"u{at}\"")).collect();
    let spread = format!("<x{namespaces}>{}</x>", "<y/>".repeat(5000));
    assert_eq!(lock(&spread), 413);
    assert_eq!(lock(&"x".repeat(3000)), 413);
    assert_eq!(lock(&format!("<x xmlns=\"{}\"/>", "u".repeat(600))), 400);
    // Unused namespaces are not stored.
    assert_eq!(lock(&format!("<x{namespaces}>me</x>")), 200);
    for _ in 1..64 {
        assert_eq!(lock("somebody"), 200);
    }
    assert_eq!(lock("one too many"), 423);
    let text = propfind(&site, "/file", "0", "").1;
    assert!(text.contains("<x>me</x>") && text.matches("somebody").count() == 63, "{text}");
    assert!(!text.contains("u99"), "{text}");
}

#[test]
fn propfind_of_many_long_properties_is_sent_in_pieces() {
    let site = Site::start();
    (0..300).for_each(|at| site.write(&format!("file{at}"), ""));
    let namespace = "u".repeat(500);
    let properties: String = (0..200).map(|at| format!("<p{at} xmlns=\"{namespace}\"/>")).collect();
    let body = "<propfind xmlns=\"DAV:\"><prop>".to_owned();
    let body = body + &properties[..properties.len().min(60_000)];
    let body = body[..body.rfind('<').unwrap()].to_owned() + "</prop></propfind>";
    let (status, text) = propfind(&site, "/", "1", &body);
    assert_eq!(status, 207);
    assert_eq!(text.matches("<D:response>").count(), 301);
    assert!(text.ends_with("</D:multistatus>\n"));
    // The response is generated in pieces: a whole batch of 256 entries would be 15 million bytes.
    let response = site.send("PROPFIND /", &["Depth: 1"], body.as_bytes());
    assert!(response.longest_chunk < 300_000, "{}", response.longest_chunk);
}
