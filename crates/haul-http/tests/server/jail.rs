//! Clients cannot leave the served directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::site::Site;

#[test]
fn no_path_leads_out_of_the_directory() {
    let site = Site::start();
    site.write("in/file", "in");
    for path in [
        "/../secret",
        "/..%2fsecret",
        "/%2e%2e/secret",
        "/in/../../secret",
        "/in/%2e%2e/%2E%2E/secret",
        "/in/..%2f..%2fsecret",
        "//../secret",
        "/in//..//..//secret",
        "/./../secret",
        "/%00/../../secret",
        "/in%00",
        "/in/file%00.txt",
        "/%2fetc/passwd",
        "//etc/passwd",
    ] {
        let response = site.get(path);
        assert!(matches!(response.status, 400 | 403 | 404), "{path}: {}", response.status);
        let text = response.text();
        assert!(!text.contains("secret") && !text.contains("root:"), "{path}: {text}");
        let response = site.put(path, &[], b"changed");
        assert!(response.status >= 400, "PUT {path}: {}", response.status);
    }
    assert_eq!(fs::read_to_string(site.outside("secret")).unwrap(), "secret");
    // Paths that stay inside work.
    assert_eq!(site.get("/in/../in/./file").text(), "in");
}

#[test]
fn no_link_leads_out_of_the_directory() {
    let site = Site::start();
    site.write("file", "in");
    symlink("../secret", site.path("relative")).unwrap();
    symlink(site.outside("secret"), site.path("absolute")).unwrap();
    symlink("..", site.path("up")).unwrap();
    symlink("/", site.path("top")).unwrap();
    symlink("/proc/self/root", site.path("magic")).unwrap();
    symlink("loop", site.path("loop")).unwrap();
    symlink("file", site.path("inside")).unwrap();
    for path in
        ["/relative", "/absolute", "/up/secret", "/top/etc/passwd", "/magic/etc/passwd", "/loop"]
    {
        assert_eq!(site.get(path).status, 404, "{path}");
        assert_eq!(
            site.send(&format!("PROPFIND {path}"), &["Depth: 0"], b"").status,
            404,
            "{path}"
        );
        let status = site.send(&format!("COPY {path}"), &["Destination: /copy"], b"").status;
        assert_eq!(status, 404, "COPY {path}");
    }
    // The served directory is the root for links: these lead to it.
    assert_eq!(site.get("/up/file").text(), "in");
    assert_eq!(site.get("/top/file").text(), "in");
    assert_eq!(site.get("/inside").text(), "in");
    for path in ["/relative", "/absolute"] {
        site.put(path, &[], b"changed");
    }
    assert_eq!(site.put("/up/new", &[], b"new").status, 201);
    assert_eq!(site.read("new"), "new");
    assert_eq!(fs::read_to_string(site.outside("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(site.outside("")).unwrap().count(), 2);
}

#[test]
fn removing_or_moving_a_link_leaves_its_target() {
    let site = Site::start();
    site.write("kept/file", "in");
    fs::create_dir(site.outside("outside")).unwrap();
    fs::write(site.outside("outside/file"), "out").unwrap();
    fs::create_dir(site.path("tree")).unwrap();
    symlink("../kept", site.path("tree/inside")).unwrap();
    symlink("../../outside", site.path("tree/outside")).unwrap();
    symlink("kept", site.path("link")).unwrap();
    assert_eq!(site.send("MOVE /link", &["Destination: /moved"], b"").status, 201);
    assert!(fs::symlink_metadata(site.path("moved")).unwrap().is_symlink());
    assert_eq!(site.send("DELETE /moved", &[], b"").status, 204);
    assert_eq!(site.send("DELETE /tree", &[], b"").status, 204);
    assert_eq!(site.names(), ["kept"]);
    assert_eq!(site.read("kept/file"), "in");
    assert_eq!(fs::read_to_string(site.outside("outside/file")).unwrap(), "out");
}

#[test]
fn moves_to_other_servers_or_over_an_ancestor_are_refused() {
    let site = Site::start();
    site.write("a/b/file", "in");
    symlink(".", site.path("here")).unwrap();
    let send = |method: &str, from: &str, to: &str| {
        site.send(&format!("{method} {from}"), &[&format!("Destination: {to}")], b"").status
    };
    for method in ["COPY", "MOVE"] {
        assert_eq!(send(method, "/a", "http://other.example/x"), 502);
        assert_eq!(send(method, "/a", "//other.example/x"), 400);
        assert_eq!(send(method, "/a", "nonsense"), 400);
        assert_eq!(send(method, "/a", "/../x"), 400);
        assert_eq!(send(method, "/a", "/x%00"), 400);
        for (from, to) in [
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a", "/a/b/c"),
            ("/a/b", "/a"),
            ("/a/b", "/here/a"),
            ("/a", "/here/a/b/c"),
            ("/a/b", "/"),
            ("/", "/x"),
        ] {
            assert_eq!(send(method, from, to), 403, "{method} {from} {to}");
        }
    }
    assert_eq!(site.send("DELETE /", &[], b"").status, 403);
    assert_eq!(site.read("a/b/file"), "in");
    let own = site.url("x");
    assert_eq!(send("MOVE", "/a", &own), 201);
    assert_eq!(site.read("x/b/file"), "in");
}

#[test]
fn names_that_are_not_utf8_work_like_others() {
    let site = Site::start();
    assert_eq!(site.put("/a%ff%fe", &[], b"bytes").status, 201);
    let name = std::ffi::OsStr::from_bytes(b"a\xff\xfe");
    assert_eq!(fs::read(site.path("").join(name)).unwrap(), b"bytes");
    assert_eq!(site.get("/a%FF%FE").text(), "bytes");
    let listed = site.send("PROPFIND /", &["Depth: 1"], b"").text();
    assert!(listed.contains("<D:href>/a%FF%FE</D:href>"), "{listed}");
    assert!(site.get("/").text().contains("href=\"./a%FF%FE\""));
    assert_eq!(site.send("MOVE /a%ff%fe", &["Destination: /b%ff"], b"").status, 201);
    assert_eq!(site.send("DELETE /b%ff", &[], b"").status, 204);
    assert!(site.names().is_empty());
}
