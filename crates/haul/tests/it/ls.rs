//! `haul ls`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use crate::session::Session;

#[test]
fn entries_are_sorted_and_directories_marked() {
    let session = Session::new().file("d/b", "").file("d/a", "").directory("d/c").link("d/l", "a");
    session.haul("ls d").status(0).stderr("").stdout("a\nb\nc/\nl\n");
}

#[test]
fn recursion_prints_paths_below_the_location() {
    let session =
        Session::new().file("d/b/y", "").file("d/b/x/z", "").file("d/a", "").file("d/c/v", "");
    session.haul("ls -R d").status(0).stdout("a\nb/\nc/\nb/x/\nb/y\nb/x/z\nc/v\n");
}

#[test]
fn a_long_listing_has_mode_size_and_time() {
    let session = Session::new().file("d/a", "12345").link("d/l", "a");
    let file = std::fs::File::options().write(true).open(session.path("d/a")).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(951_782_400)).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o640)).unwrap();
    let out = session.haul_where("ls -l d", &[("TZ", "UTC")]).status(0).out();
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "-rw-r-----              5 2000-02-29 00:00:00 a");
    assert!(lines[1].starts_with("lrwxrwxrwx ") && lines[1].ends_with(" l -> a"), "{out}");
    let local = session.haul_where("ls -lh d/a", &[("TZ", "<+05>-5")]).status(0);
    local.stdout("-rw-r-----      5 B 2000-02-29 05:00:00 a\n");
    // Formerly, a zone specified by its name was treated as UTC. Minimal systems have no time zone database.
    if std::path::Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists() {
        let named = session.haul_where("ls -lh d/a", &[("TZ", "Asia/Tokyo")]).status(0);
        named.stdout("-rw-r-----      5 B 2000-02-29 09:00:00 a\n");
    }
}

#[test]
fn entries_are_sorted_by_time_or_size() {
    let session = Session::new().file("d/a", "333").file("d/b", "1").file("d/c", "22");
    for (name, seconds) in [("a", 100), ("b", 300), ("c", 200)] {
        let file = std::fs::File::options().write(true).open(session.path(format!("d/{name}")));
        file.unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    session.haul("ls -t d").status(0).stdout("b\nc\na\n");
    session.haul("ls -tr d").status(0).stdout("a\nc\nb\n");
    session.haul("ls -S d").status(0).stdout("a\nc\nb\n");
    session.haul("ls -r1 d").status(0).stdout("c\nb\na\n");
}

#[test]
fn a_directory_itself_and_several_locations_can_be_listed() {
    let session = Session::new().file("d/.a", "").file("e/b", "").file("f", "");
    session.haul("ls -d d").status(0).stdout("d/\n");
    session.haul("ls -a d").status(0).stdout(".a\n");
    session.haul("ls e f d").status(0).stdout("f\ne:\nb\nd:\n.a\n");
    session.haul("ls e none f").status(1).stdout("f\ne:\nb\n").stderr_has("haul: none: ");
    session.haul("ls --help").status(0).stdout_has("--human-readable");
}

#[test]
fn a_file_is_listed_with_the_requested_name() {
    let session = Session::new().file("d/a", "a").link("l", "d/a");
    session.haul("ls d/a").status(0).stdout("a\n");
    session.haul("ls l").status(0).stdout("l\n");
}

#[test]
fn names_that_are_not_utf8_keep_their_bytes() {
    let name = OsStr::from_bytes(b"d/\xff\n");
    let session = Session::new().file(name, "a");
    assert_eq!(session.haul("ls d").status(0).bytes(), b"\xff\n\n");
    let object = session.haul("ls --json d").status(0).objects().remove(0);
    assert_eq!(object["event"], "entry");
    assert_eq!(object["path"], "\u{fffd}\n");
    assert_eq!(object["path_bytes"], "ff0a");
    assert_eq!(object["size"], 1);
    assert_eq!(session.haul_with("ls", name.as_bytes()).status(0).bytes(), b"\xff\n\n");
}

/// Formerly, every command panicked.
#[test]
fn environment_variables_that_are_not_utf8_do_no_harm() {
    let session = Session::new().file("d/a", "");
    let mut command = session.command("ls d");
    command.env("ODD", OsStr::from_bytes(b"\xff")).env(OsStr::from_bytes(b"ODD\xff"), "a");
    session.ran("ls d", command.output().unwrap()).status(0).stderr("").stdout("a\n");
    // A proxy that cannot be used is not bypassed.
    let line = "ls http://127.0.0.1:1/";
    let mut command = session.command(line);
    command.env("http_proxy", OsStr::from_bytes(b"http://\xff:1/")).env("no_proxy", "");
    let ran = session.ran(line, command.output().unwrap()).status(1);
    ran.stderr_has("http_proxy is not the URL of a proxy");
}

#[test]
fn a_missing_location_is_an_error() {
    let session = Session::new();
    session.haul("ls none").status(1).stderr("haul: none: cannot open (not found)\n");
    let ran = session.haul("ls none --json").status(1).stderr("");
    assert_eq!(ran.objects()[0]["event"], "error");
    assert_eq!(ran.objects()[0]["kind"], "not_found");
}
