//! `haul sync`.

use crate::session::Session;

fn session() -> Session {
    Session::new().file("src/a", "a").file("src/d/b", "b").file("dst/old", "o").file("dst/x/y", "")
}

#[test]
fn the_slash_makes_no_difference_and_nothing_is_removed_unasked() {
    for line in ["sync -q src dst", "sync -q src/ dst/"] {
        let session = session();
        session.haul(line).status(0).stdout("").stderr("");
        assert_eq!(session.haul("ls -R dst").out(), "a\nd/\nold\nx/\nd/b\nx/y\n");
    }
}

#[test]
fn delete_makes_dest_equal_to_source() {
    let session = session();
    session.haul("sync -n --delete src dst").status(0).stdout_has("would remove old\n");
    assert!(session.has("dst/old"));
    session.haul("sync -q --delete src dst").status(0);
    session.tool("diff -r src dst");
}

#[test]
fn delete_spares_what_is_excluded_and_the_manifest() {
    let session = session();
    session.haul("sync -q --delete --manifest --exclude old src dst").status(0);
    assert_eq!(session.haul("ls -R dst").out(), "SHA256SUMS\na\nd/\nold\nd/b\n");
    session.haul("sync -q --delete --manifest --exclude old src dst").status(0);
    assert_eq!(session.haul("ls -R dst").out(), "SHA256SUMS\na\nd/\nold\nd/b\n");
    // What is removed leaves the manifest, too.
    std::fs::remove_file(session.path("src/a")).unwrap();
    session.haul("sync -q --delete --manifest src dst").status(0);
    assert_eq!(session.read("dst/SHA256SUMS").lines().count(), 1);
    session.haul("verify --strict dst").status(0);
}

#[test]
fn a_file_is_no_source() {
    session()
        .haul("sync src/a dst")
        .status(2)
        .stderr("haul: src/a: is no directory; use haul cp for a file\n");
}

#[test]
fn what_is_around_the_source_is_not_made_like_it() {
    let session = session().file("src/src/a", "inner");
    let run = session.haul("sync --delete src/src src").status(1);
    run.stderr_has("is around the source, which would be removed");
    session.haul("sync -n --delete src/src src").status(1).stderr_has("is around the source");
    assert_eq!((session.read("src/src/a"), session.read("src/d/b")), ("inner".into(), "b".into()));
    // What the filter leaves out stays, and so does the source in it.
    session.haul("sync -q --delete --exclude /src src/src src").status(0);
    assert_eq!((session.read("src/a"), session.has("src/d")), ("inner".into(), false));
    assert_eq!(session.read("src/src/a"), "inner");
    session.haul("sync -q src/src src").status(0);
    assert_eq!(session.read("src/a"), "inner");
}
