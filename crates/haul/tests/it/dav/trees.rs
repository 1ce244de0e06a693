//! Copies trees to WebDAV servers and back.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{DavServer, haul, other, servers};
use crate::content::content;
use crate::session::Session;

/// A tree of cases that often fail: empty files and directories, names with special characters of URLs, many
/// small files, and a file of medium size.
pub(crate) fn write_tree(session: &Session, many: usize) {
    for name in
        ["empty", "a b/ün ï", "100%", "50%41", "hash#tag", "what?x=1", "semi;colon&+", "deep/er/f"]
    {
        session.write(format!("src/{name}"), if name == "empty" { "" } else { name });
    }
    std::fs::create_dir_all(session.path("src/nothing in it/at all")).unwrap();
    for n in 0..many {
        session.write(format!("src/many{}/{n}", n % 7), content(n as u64, n % 1000));
    }
    session.write("src/middle", content(1, 3_000_001));
    // A rerun has to recognise them by their times, where the server preserves those.
    session.tool("find src -type f -exec touch -d 2020-01-02T03:04:05 {} +");
}

/// Copies a tree of `many` small files to a server and back; also tests dry run, a second run, `ls`, `verify` and
/// `sync --delete`.
fn tree_round_trip(session: &Session, server: &DavServer, many: usize, preserves_times: bool) {
    let name = server.name;
    write_tree(session, many);
    let DavServer { url, root, .. } = server;
    let same = |path: &str| {
        let copy = root.join(path);
        session.tool(&format!("diff -r --exclude=.DAV src {}", copy.display()));
    };
    session.haul(&format!("cp --dry-run src {url}dry")).status(0);
    assert!(!root.join("dry").exists(), "{name}");
    session.haul(&format!("cp src {url}up/")).status(0);
    same("up/src");
    let again = session.haul(&format!("cp --json src {url}up/")).status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{name}: {}", again.out());
    session.haul(&format!("cp {url}up/src down/")).status(0);
    session.tool("diff -r src down/src");
    let again = session.haul(&format!("cp --json {url}up/src down/")).status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{name}: {}", again.out());
    let listed = session.haul(&format!("ls -l -R {url}up/src")).status(0).out();
    for part in ["100%", "hash#tag", "what?x=1", "a b/ün ï", "nothing in it/at all", "3000001"] {
        assert!(listed.contains(part), "{name}: no {part} in {listed}");
    }
    session.haul(&format!("cp --manifest src/deep {url}listed/")).status(0);
    session.haul(&format!("verify {url}listed/")).status(0);
    std::fs::remove_dir_all(session.path("src/many1")).unwrap();
    // Another length, so that the change is found without times too.
    session.write("src/empty", "no longer");
    let synced = session.haul(&format!("sync --delete src/ {url}up/src")).status(0);
    same("up/src");
    assert!(root.join("listed").exists(), "{name}: {}", synced.err());
    if preserves_times {
        let time = |path| std::fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(time(session.path("src/middle")), time(root.join("up/src/middle")), "{name}");
    }
}

#[test]
fn a_tree_goes_to_haul_and_back() {
    let session = Session::new();
    let server = haul(&session);
    tree_round_trip(&session, &server, 2000, true);
}

#[test]
fn a_tree_goes_to_apache_and_back() {
    let Some(server) = other("Apache", servers::apache()) else { return };
    tree_round_trip(&Session::new(), &server, 300, false);
}

#[test]
fn a_tree_goes_to_nginx_and_back() {
    let Some(server) = other("nginx", servers::nginx()) else { return };
    tree_round_trip(&Session::new(), &server, 300, false);
}

#[test]
fn a_tree_goes_to_rclone_and_back() {
    let Some(server) = other("rclone", servers::rclone()) else { return };
    tree_round_trip(&Session::new(), &server, 300, false);
}

/// Changes every byte of a source file, and writes it again until its time is in a later second than that of its copy:
/// times of uploads are known in whole seconds.
pub(crate) fn change_later(session: &Session, source: &str, copy: &Path) {
    let seconds = |path: &Path| {
        let modified = std::fs::metadata(path).unwrap().modified().unwrap();
        modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    };
    let source = session.path(source);
    let changed: Vec<_> = std::fs::read(&source).unwrap().iter().map(|byte| !byte).collect();
    let begun = Instant::now();
    loop {
        std::fs::write(&source, &changed).unwrap();
        if seconds(&source) > seconds(copy) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{} is too new", copy.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_changed_file_of_equal_length_is_sent_to_every_server() {
    let session = Session::new();
    let all = [
        Some(haul(&session)),
        other("Apache", servers::apache()),
        other("nginx", servers::nginx()),
        other("rclone", servers::rclone()),
    ];
    write_tree(&session, 20);
    for DavServer { name, url, root, _server } in all.into_iter().flatten() {
        session.haul(&format!("cp -q src {url}up/")).status(0);
        change_later(&session, "src/deep/er/f", &root.join("up/src/deep/er/f"));
        change_later(&session, "src/middle", &root.join("up/src/middle"));
        let synced = session.haul(&format!("sync --json src {url}up/src")).status(0);
        assert_eq!(synced.summary()["moved_bytes"], 9 + 3_000_001, "{name}: {}", synced.out());
        session.tool(&format!("diff -r --exclude=.DAV src {}", root.join("up/src").display()));
        for line in ["sync --json src", "cp --json src/"] {
            let again = session.haul(&format!("{line} {url}up/src")).status(0);
            assert_eq!(again.summary()["moved_bytes"], 0, "{name}: {}", again.out());
        }
    }
}

#[test]
fn a_large_file_goes_to_haul_and_apache_and_back() {
    let session = Session::new();
    let all = [Some(haul(&session)), other("Apache", servers::apache())];
    session.write("src", content(1, 1 << 20).repeat(200));
    for server in all.into_iter().flatten() {
        session.haul(&format!("cp src {}f", server.url)).status(0);
        session.tool(&format!("cmp src {}", server.root.join("f").display()));
        session.haul(&format!("cp {}f back", server.url)).status(0);
        session.tool("cmp src back");
        std::fs::remove_file(session.path("back")).unwrap();
    }
}

/// Formerly, all files were downloaded to be compared.
#[test]
fn contents_are_compared_by_the_digests_that_the_server_reports() {
    let session = Session::new().file("src/a", "12345").file("src/d/b", "bb");
    let DavServer { url, root, _server, .. } = haul(&session);
    session.haul(&format!("cp -q src {url}")).status(0);
    let checked = session.haul(&format!("check --checksum src {url}src")).status(0).stdout("");
    let expected = "2 same; 2 of these by digests from the server; read 7 B in ";
    assert!(checked.err().starts_with(expected), "{}", checked.err());
    // The same size and time, but different bytes.
    let file = root.join("src/a");
    let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::write(&file, "54321").unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    session.haul(&format!("check src {url}src")).status(0);
    let checked = session.haul(&format!("check -c --json src {url}src")).status(1);
    assert!(checked.out().contains("\"content\""), "{}", checked.out());
    assert_eq!(checked.summary()["reported"], 1);
    let copied = session.haul(&format!("cp -c --json --manifest=SUMS src {url}")).status(0);
    assert_eq!(copied.summary()["moved_bytes"], 5, "{}", copied.out());
    assert_eq!(std::fs::read(&file).unwrap(), b"12345");
    std::fs::copy(session.path("SUMS"), root.join("SHA256SUMS")).unwrap();
    let verified = session.haul(&format!("verify --json {url}")).status(0);
    let summary = verified.summary();
    assert_eq!((&summary["matched"], &summary["reported"]), (&2.into(), &2.into()));
    assert_eq!(summary["bytes"], 0);
}
