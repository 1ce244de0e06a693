//! Name collisions: of haul's own files with those of a user, and of several sources.

use std::fs;

use crate::session::Session;

/// Formerly, the old version of `x`, set aside, had the name of the part file of `old-x`.
#[test]
fn the_part_file_of_a_file_is_never_taken_for_the_old_version_of_another() {
    let session = Session::new().file("s/x", "new").directory("d");
    // What a killed copy of `old-x` leaves.
    session.write("d/.old-x.haul-part", "half of old-x");
    session.haul("cp -q --overwrite never s/x d/").status(0);
    assert_eq!(session.read("d/x"), "new");
    assert_eq!(session.read("d/.old-x.haul-part"), "half of old-x");
}

#[test]
fn nothing_is_copied_to_a_reserved_name() {
    let session = Session::new().file("s/.x.haul-part", "mine").file("s/y", "y").directory("d");
    session
        .haul("cp -q s/.x.haul-part d/")
        .status(1)
        .stderr_has("the name .x.haul-part is reserved for unfinished copies");
    assert!(!session.has("d/.x.haul-part"));
    // It can be copied to another name.
    session.haul("cp -q s/.x.haul-part d/rescued").status(0);
    assert_eq!(session.read("d/rescued"), "mine");
    // In a tree it is left out, with a warning.
    session.haul("cp s/ d/tree").status(0).stderr_has("unfinished copy of haul; not copied");
    assert_eq!(session.haul("ls d/tree").out(), "y\n");
}

/// Two names of 253 bytes that begin alike have different part files, whose names are cut between characters.
#[test]
fn long_names_of_multibyte_characters_are_copied() {
    let session = Session::new();
    let names = ["a", "b"].map(|end| format!("{}{end}", "日".repeat(84)));
    let content = |name: &String| name.repeat(20_000);
    for name in &names {
        session.write(format!("s/{name}"), content(name));
    }
    session.haul("cp -q --verify s/ d").status(0);
    for name in &names {
        assert_eq!(session.read(&format!("d/{name}")), content(name));
    }
    assert_eq!(fs::read_dir(session.path("d")).unwrap().count(), 2);
}

#[test]
fn several_directories_are_merged_into_one() {
    let session = Session::new().file("a/x", "x").file("b/y", "y").file("b/sub/z", "z");
    session.haul("cp a/ b/ d").status(0).without_warnings();
    assert_eq!(session.haul("ls -R d").out(), "sub/\nx\ny\nsub/z\n");
    session.haul("cp a/ b/ d").status(0).without_warnings();
}

#[test]
fn a_source_does_not_replace_the_file_of_an_earlier_one() {
    let session = Session::new().file("a/x", "first").file("b/x", "second").file("b/y", "y");
    for destination in ["d", "d"] {
        session
            .haul(&format!("cp -q a/ b/ {destination}"))
            .status(1)
            .stderr_has("this run copies")
            .stderr_has("a/x to that name");
        assert_eq!((session.read("d/x"), session.read("d/y")), ("first".into(), "y".into()));
    }
    let session = Session::new().file("a/x", "first").file("b/x", "second").directory("d");
    session.haul("cp -q a/x b/x d").status(2).stderr_has("another source is also copied to");
    assert!(!session.has("d/x"));
    session.haul("cp -q --exclude /x a/ b/ e").status(0);
}

/// Formerly, looking `x/y` up in the first source failed, because its `x` is no directory.
#[test]
fn a_pipe_of_an_earlier_source_does_not_block_its_name_for_a_later_one() {
    let session = Session::new().file("a/z", "z").file("b/x/y", "y").file("b/p", "p");
    session.tool("mkfifo a/x a/p");
    session.haul("cp a/ b/ d").status(0).stderr_has("a/x: is a named pipe; not copied");
    assert_eq!(session.haul("ls -R d").out(), "p\nx/\nz\nx/y\n");
    assert_eq!(session.read("d/p"), "p");
}

#[test]
fn a_file_of_an_earlier_source_blocks_a_directory_of_its_name_in_a_later_one() {
    let session = Session::new().file("a/x", "first").file("b/x/y", "y").file("b/z/y", "y");
    let ran = session.haul("cp -n a/ b/ d").status(1);
    ran.stderr_has("this run copies").stderr_has("a/x to the name of a directory above it");
    session.haul("cp -q --exclude /x a/ b/ e").status(0);
    assert_eq!(session.haul("ls -R e").out(), "z/\nz/y\n");
}

/// Formerly, any file of that name in the earlier source blocked it.
#[test]
fn a_file_that_is_not_selected_does_not_block_its_name_for_a_later_source() {
    let session = Session::new().file("a/x", "1").file("b/x", "12345");
    session.haul("cp -q --min-size 3 a/ b/ d").status(0);
    assert_eq!(session.read("d/x"), "12345");
}
