//! `haul share`, and its tickets in all commands.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::faults::{as_nobody, is_root};
use crate::private::{check_private, check_read_only_directories, check_read_only_part_files};
use crate::pty::Terminal;
use crate::serve::Serving;
use crate::session::{Ran, Session};

/// A running share with these options and paths, and its ticket.
fn share(session: &Session, options: &str) -> (Serving, String) {
    let line = format!("share {options} --listen 127.0.0.1:0");
    shared(Serving::json(session, &line))
}

/// A session with a directory `inbox`, shared by an ordinary user; its ticket. `None`, with the reason printed, without
/// root.
fn share_of_nobody() -> Option<(Session, Serving, String)> {
    if !is_root() {
        eprintln!("skipped: acting as another user needs root");
        return None;
    }
    let session = Session::new().directory("inbox").directory("home");
    std::os::unix::fs::chown(session.path("inbox"), Some(65534), Some(65534)).unwrap();
    let line = "share --writable inbox --listen 127.0.0.1:0 --json";
    let (serving, ticket) = shared(Serving::parsed(as_nobody(&session, line)));
    Some((session, serving, ticket))
}

fn shared((serving, object): (Serving, serde_json::Value)) -> (Serving, String) {
    assert_eq!(object["event"], "sharing");
    let ticket = object["ticket"].as_str().unwrap().to_owned();
    assert!(ticket.starts_with("haul1"), "{ticket}");
    (serving, ticket)
}

/// Runs `haul` with a standard input.
fn with_input(session: &Session, line: &str, input: &str) -> Ran {
    let mut command = session.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    session.ran(line, child.wait_with_output().unwrap())
}

/// Starts a copy that has `--json`, and waits until this many bytes have moved. Returns it with the rest of its output.
fn moving(session: &Session, line: &str, bytes: u64) -> (Child, BufReader<ChildStdout>) {
    let mut command = session.command(line);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let is_moving = output.by_ref().lines().any(|line| {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        event["moved_bytes"].as_u64().is_some_and(|moved| moved >= bytes)
    });
    assert!(is_moving, "it ended before {bytes} bytes had moved");
    (child, output)
}

fn session() -> Session {
    Session::new()
        .file("photos/one.jpg", "first")
        .file("photos/deep/er/two.jpg", "second")
        .file("photos/empty", "")
        .link("photos/link", "one.jpg")
}

#[test]
fn a_shared_directory_is_listed_read_and_copied_by_its_ticket() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    assert_eq!(session.haul(&format!("ls {ticket}")).out(), "deep/\nempty\nlink\none.jpg\n");
    assert_eq!(session.haul(&format!("ls {ticket}/deep")).out(), "er/\n");
    assert_eq!(session.haul(&format!("cat {ticket}/one.jpg")).out(), "first");
    session.haul(&format!("cp -q {ticket}/ all")).status(0);
    session.haul(&format!("cp -q {ticket}/deep/er/two.jpg .")).status(0);
    session.haul("check --checksum photos all").status(0);
    assert_eq!(fs::read(session.path("two.jpg")).unwrap(), b"second");
    assert_eq!(fs::read_link(session.path("all/link")).unwrap().to_str(), Some("one.jpg"));
    serving.end("INT");
}

#[test]
fn a_share_is_read_only_unless_it_is_writable() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    let ran = session.haul(&format!("cp photos/one.jpg {ticket}/copy"));
    let message = ran.status(1).err();
    assert!(message.contains("cannot change the share (it is shared read-only)"), "{message}");
    assert!(!message.contains(&ticket), "the message contains the ticket: {message}");
    session.haul(&format!("rm {ticket}/one.jpg")).status(1);
    assert_eq!(fs::read_dir(session.path("photos")).unwrap().count(), 4);
    serving.end("TERM");
}

#[test]
fn a_writable_share_takes_every_command() {
    let session = session().directory("inbox");
    let (serving, ticket) = share(&session, "--writable inbox");
    session.haul(&format!("cp -q -a photos {ticket}/")).status(0);
    session.haul(&format!("check --checksum photos {ticket}/photos")).status(0);
    session.haul(&format!("mkdir -p {ticket}/a/b")).status(0);
    session.haul(&format!("mv {ticket}/photos/one.jpg {ticket}/a/b/")).status(0);
    assert_eq!(fs::read(session.path("inbox/a/b/one.jpg")).unwrap(), b"first");
    session.haul(&format!("sync -q --delete photos {ticket}/photos")).status(0);
    session.haul(&format!("check photos {ticket}/photos")).status(0);
    session.haul(&format!("rm -r {ticket}/a")).status(0);
    assert!(!session.path("inbox/a").exists());
    serving.end("INT");
}

/// Promise: files that are private in the source are not open to others on the sharer while they are copied.
#[test]
fn a_private_directory_is_private_on_a_share_while_it_is_copied_and_after_an_interruption() {
    for signal in ["INT", "KILL"] {
        let session = Session::new().directory("inbox");
        let (serving, ticket) = share(&session, "--writable inbox");
        let destination = (&*format!("{ticket}/dst"), "inbox/dst", true);
        check_private(&session, signal, destination, str::to_owned);
        serving.end("INT");
    }
}

#[test]
fn a_copy_in_read_only_directories_is_updated_by_their_owner_on_a_share() {
    let Some((session, serving, ticket)) = share_of_nobody() else { return };
    check_read_only_directories(&session, (&ticket, "inbox"), str::to_owned);
    serving.end("INT");
}

#[test]
fn a_read_only_part_file_is_completed_by_its_owner_on_a_share() {
    let Some((session, serving, ticket)) = share_of_nobody() else { return };
    check_read_only_part_files(&session, (&ticket, "inbox"), str::to_owned);
    serving.end("INT");
}

/// Formerly, the journal of such a name stayed on the sharer.
#[test]
fn a_name_that_becomes_a_hard_link_leaves_no_part_file_and_no_journal_on_a_share() {
    let session = Session::new().file("src/one", vec![1; 4 << 20]).directory("inbox");
    fs::hard_link(session.path("src/one"), session.path("src/two")).unwrap();
    let (serving, ticket) = share(&session, "--writable inbox");
    session.haul(&format!("sync -q -a src {ticket}/dst")).status(0);
    // Part files of a killed run. Either name may be copied now, and the other is linked to it, so both have one.
    for name in ["one", "two"] {
        fs::remove_file(session.path(format!("inbox/dst/{name}"))).unwrap();
        session.write(format!("inbox/dst/.{name}.haul-part"), "begun");
        session.write(format!("inbox/dst/.{name}.haul-journal"), "begun");
    }
    session.haul(&format!("sync -q -a src {ticket}/dst")).status(0);
    let entries = fs::read_dir(session.path("inbox/dst")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(fs::metadata(session.path("inbox/dst/two")).unwrap().nlink(), 2);
    session.haul(&format!("check --checksum src {ticket}/dst")).status(0);
    serving.end("INT");
}

/// Formerly, `sync --delete` removed its own source.
#[test]
fn a_share_is_not_copied_into_itself_nor_deleted_around_the_source() {
    let session = session().file("photos/deep/beside", "x").file("inbox/deep/old", "x");
    let (serving, ticket) = share(&session, "--writable photos");
    let around = "is a parent of the source, which --delete would remove";
    for (line, cause) in [
        ("sync --delete TICKET/deep/er TICKET/deep", around),
        ("sync --delete TICKET/deep/er TICKET", around),
        ("cp TICKET/deep TICKET/deep/er", "is inside the source"),
        ("cp TICKET/one.jpg TICKET/one.jpg", "is the same as the source"),
    ] {
        session.haul(&line.replace("TICKET", &ticket)).status(1).stderr_has(cause);
    }
    assert_eq!(session.read("photos/deep/er/two.jpg"), "second");
    assert!(session.has("photos/deep/beside") && session.has("photos/one.jpg"));
    // Another share of the same sharer.
    let (second, other) = share(&session, "--writable inbox");
    session.haul(&format!("sync -q --delete {ticket}/deep/er {other}/deep")).status(0);
    assert!(session.has("inbox/deep/two.jpg") && !session.has("inbox/deep/old"));
    serving.end("INT");
    second.end("INT");
}

#[test]
fn a_killed_copy_from_a_ticket_resumes() {
    let session = Session::new();
    let content: Vec<u8> = (0..50_000_000_u32).map(|at| (at / 5) as u8).collect();
    session.write("data/big", &content);
    let (serving, ticket) = share(&session, "data");
    let line = format!("cp --json --bwlimit 10M {ticket}/big .");
    let (mut child, _output) = moving(&session, &line, 15_000_000);
    child.kill().unwrap();
    child.wait().unwrap();
    let printed = session.haul(&format!("cp {ticket}/big .")).status(0).err();
    assert!(printed.contains("resumed"), "{printed}");
    assert!(fs::read(session.path("big")).unwrap() == content);
    serving.end("INT");
}

#[test]
fn an_invalid_ticket_is_refused_with_the_reason() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    let middle = ticket.len() / 2;
    let other = if ticket.as_bytes()[middle] == b'a' { "b" } else { "a" };
    let wrong = format!("{}{other}{}", &ticket[..middle], &ticket[middle + 1..]);
    let message = session.haul(&format!("ls {wrong}")).status(1).err();
    assert!(message.contains("mistyped") || message.contains("checksum"), "{message}");
    serving.end("INT");
    let message = session.haul(&format!("ls {ticket}")).status(1).err();
    assert!(message.contains("cannot connect"), "{message}");
}

/// Formerly, such an address was silently left out of the ticket.
#[test]
fn an_address_that_cannot_be_dialled_is_refused() {
    let session = session();
    for (address, cause) in [
        ("0.0.0.0:4180", "the unspecified address cannot be dialled"),
        ("203.0.113.7:0", "port 0 cannot be dialled"),
        ("[fe80::1]:4180", "a link-local IPv6 address is valid on one interface only"),
        ("203.0.113.7", "it is not an address and port, as in 203.0.113.7:4180"),
    ] {
        session.haul(&format!("share photos --address {address}")).status(2).stderr_has(cause);
    }
}

#[test]
fn a_ticket_for_one_use_is_used_once() {
    let session = session();
    let (serving, ticket) = share(&session, "--one-use photos");
    session.haul(&format!("cp -q {ticket}/ first")).status(0);
    let message = session.haul(&format!("cp {ticket}/ second")).status(1).err();
    assert!(message.contains("one use"), "{message}");
    serving.end("INT");
}

/// The secret begins behind the first 59 characters after `haul1`.
#[test]
fn a_ticket_is_recognized_by_its_key_and_printed_without_its_secret() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    let (second, other) = share(&session, "photos");
    let message = |ticket: &str| session.haul(&format!("cat {ticket}/none")).status(1).err();
    let (first, next) = (message(&ticket), message(&other));
    assert_eq!(first, next, "the tickets of one identity are printed differently");
    assert!(first.contains(&ticket[..18]) && !first.contains(&ticket[..19]), "{first}");
    serving.end("INT");
    second.end("INT");
}

#[test]
fn a_ticket_is_read_from_a_file() {
    let session = session();
    let (serving, ticket) = share(&session, "--writable photos");
    session.write("keys/t", format!("\n{ticket}\nmore\n"));
    fs::set_permissions(session.path("keys/t"), fs::Permissions::from_mode(0o600)).unwrap();
    session.haul("cat @keys/t/one.jpg").status(0).stdout("first").stderr("");
    session.haul("ls @keys/t").status(0).stdout("deep/\nempty\nlink\none.jpg\n");
    session.haul("cp -q photos/one.jpg @keys/t/copied").status(0);
    assert_eq!(session.read("photos/copied"), "first");
    let absolute = format!("cat @{}/one.jpg", session.path("keys/t").display());
    session.haul(&absolute).status(0).stdout("first");
    // Other users can read the file.
    fs::set_permissions(session.path("keys/t"), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = session.haul("cat @keys/t/one.jpg").status(0).stdout("first");
    ran.stderr_has("haul: warning: @keys/t: other users can read it");
    // A local file with that name takes precedence.
    session.write("@keys/t", "local");
    session.haul("cat @keys/t").status(0).stdout("local");
    session.haul("cat @none/x").status(2).stderr_has("@none/x: cannot read the ticket");
    session.write("keys/other", "haul1 is missing\n");
    let message = session.haul("cat @keys/other/x").status(2).err();
    assert!(message.contains("@keys/other: cannot use the ticket (it"), "{message}");
    let message = session.haul(&format!("cat @{ticket}/x")).status(2).err();
    assert!(message.contains("without it") && !message.contains(&ticket[..19]), "{message}");
    serving.end("INT");
}

/// The rest of standard input, after the line of the ticket, is left for the command.
#[test]
fn a_ticket_is_read_from_standard_input() {
    let session = session();
    let (serving, ticket) = share(&session, "--writable photos");
    with_input(&session, "cat @-/one.jpg", &format!("{ticket}\n")).status(0).stdout("first");
    with_input(&session, "cp -q @-/one.jpg @-/deep/ .", &ticket).status(0);
    assert_eq!(session.read("one.jpg") + &session.read("er/two.jpg"), "firstsecond");
    with_input(&session, "cp -q - @-/new", &format!("{ticket}\nthe content")).status(0);
    assert_eq!(session.read("photos/new"), "the content");
    with_input(&session, "ls @-", "").status(2).stderr_has("@-: cannot use the ticket");
    serving.end("INT");
}

#[test]
fn a_ticket_is_taken_from_the_environment() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    let set = [("HAUL_TICKET", ticket.as_str())];
    session.haul_where("ls ticket:", &set).status(0).stdout("deep/\nempty\nlink\none.jpg\n");
    session.haul_where("cat ticket:one.jpg", &set).status(0).stdout("first");
    session.haul_where("cat ticket:/one.jpg", &set).status(0).stdout("first");
    let message = session.haul_where("cat ticket:none", &set).status(1).err();
    assert!(message.contains(&ticket[..18]) && !message.contains(&ticket[..19]), "{message}");
    session.haul("ls ticket:").status(2).stderr_has("HAUL_TICKET is not set");
    let damaged = [("HAUL_TICKET", &ticket[..ticket.len() - 3])];
    let message = session.haul_where("ls ticket:", &damaged).status(2).err();
    assert!(message.contains("HAUL_TICKET: cannot use the ticket"), "{message}");
    assert!(!message.contains(&ticket[..19]), "{message}");
    serving.end("INT");
}

#[test]
fn a_ticket_in_upper_case_is_accepted() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    let upper = ticket.to_uppercase();
    session.haul(&format!("cat {upper}/one.jpg")).status(0).stdout("first");
    let message = session.haul(&format!("cat {upper}/none")).status(1).err();
    assert!(message.contains(&ticket[..18]) && !message.contains(&ticket[..19]), "{message}");
    // A digit that is easily mistaken for a letter.
    let mistyped = format!("{}0{}", &upper[..30], &upper[31..]);
    let message = session.haul(&format!("cat {mistyped}/one.jpg")).status(2).err();
    assert!(message.contains("mistyped or damaged"), "{message}");
    let cut = &upper[..upper.len() - 10];
    let message = session.haul(&format!("cat {cut}/one.jpg")).status(1).err();
    assert!(message.contains("cannot use the ticket (it is "), "{message}");
    serving.end("INT");
}

#[test]
fn a_pattern_behind_a_ticket_is_expanded() {
    let session = session().file("photos/two.jpg", "2").file("photos/x[1].txt", "literal");
    let (serving, ticket) = share(&session, "photos");
    session.haul(&format!("cp -q {ticket}/*.jpg .")).status(0);
    assert_eq!(session.read("one.jpg") + &session.read("two.jpg"), "first2");
    session.haul(&format!("cat {ticket}/*/er/t*")).status(0).stdout("second");
    session.haul(&format!("cat {ticket}/x[1].txt")).status(0).stdout("literal");
    let message = session.haul(&format!("ls {ticket}/*.png")).status(1).err();
    assert!(message.contains("nothing matches this pattern"), "{message}");
    assert!(!message.contains(&ticket[..19]), "{message}");
    // The other arguments are handled nevertheless.
    let others = |line: &str| {
        let ran = session.haul(&line.replace("TICKET", &ticket)).status(1);
        ran.stderr_has("nothing matches this pattern").out()
    };
    let listed = others("ls TICKET/*.png TICKET/deep");
    assert!(listed.ends_with("/deep:\ner/\n"), "{listed}");
    assert_eq!(others("cat TICKET/*.png TICKET/*.jpg"), "first2");
    assert_eq!(others("du -s TICKET/*.png TICKET/deep").lines().count(), 1);
    serving.end("INT");
}

#[test]
fn files_and_directories_are_shared_with_one_ticket() {
    let session = session()
        .file("docs/notes.txt", "notes")
        .file("list.txt", "list")
        .file("copy/photos/x", "x")
        .link("alias", "list.txt");
    let (serving, ticket) = share(&session, "list.txt");
    session.haul(&format!("ls {ticket}")).status(0).stdout("list.txt\n");
    session.haul(&format!("cp -q {ticket}/ got")).status(0);
    assert_eq!(session.read("got/list.txt"), "list");
    for outside in ["photos/one.jpg", "list.txt/x", "../list.txt", "alias"] {
        session.haul(&format!("cat {ticket}/{outside}")).status(1).stdout("");
    }
    serving.end("INT");
    let (serving, ticket) = share(&session, "photos docs alias");
    session.haul(&format!("ls {ticket}")).status(0).stdout("alias\ndocs/\nphotos/\n");
    session.haul(&format!("cat {ticket}/alias {ticket}/docs/notes.txt")).stdout("listnotes");
    session.haul(&format!("cp -q {ticket}/ all")).status(0);
    session.haul("check --checksum photos all/photos").status(0);
    assert_eq!(session.read("all/alias") + &session.read("all/docs/notes.txt"), "listnotes");
    session.haul(&format!("cat {ticket}/list.txt")).status(1);
    serving.end("INT");
    let message = session.haul("share photos copy/photos").status(1).err();
    assert!(message.contains("another path is also shared as photos"), "{message}");
    session.haul("share none").status(1).stderr_has("none: cannot share (");
}

#[test]
fn a_share_of_several_paths_allows_no_changes_beside_them() {
    let session = session().file("list.txt", "list").file("new", "new list").directory("inbox");
    let (serving, ticket) = share(&session, "--writable list.txt inbox");
    session.haul(&format!("cp -q new {ticket}/list.txt")).status(0);
    assert_eq!(session.read("list.txt"), "new list");
    session.haul(&format!("cp -q -a photos {ticket}/inbox/")).status(0);
    session.haul(&format!("mv -q {ticket}/inbox/photos/one.jpg {ticket}/inbox/")).status(0);
    assert_eq!(session.read("inbox/one.jpg"), "first");
    let message = session.haul(&format!("cp new {ticket}/other")).status(1).err();
    assert!(message.contains("which stay as they are"), "{message}");
    for line in ["mkdir TICKET/other", "rm TICKET/new", "rm -r TICKET/inbox", "cp -q new TICKET/"] {
        session.haul(&line.replace("TICKET", &ticket)).status(1);
    }
    assert!(session.has("inbox") && session.has("new") && !session.has("other"));
    serving.end("INT");
}

#[test]
fn a_command_that_is_connected_fails_when_the_ticket_expires() {
    let session = Session::new();
    session.write("data/big", vec![7_u8; 60_000_000]);
    let (serving, ticket) = share(&session, "--expires 3 data");
    let message = session.haul(&format!("cp --bwlimit 5M {ticket}/big .")).status(1).err();
    assert!(message.contains("the ticket has expired"), "{message}");
    assert!(!session.has("big"));
    assert_eq!(serving.wait(), Some(0));
}

/// Formerly, its registration at a bridge and the port that a router forwards stayed until Ctrl-C.
#[test]
fn a_share_ends_when_its_ticket_expires() {
    let session = session();
    let line = "share --expires 1 photos --listen 127.0.0.1:0";
    let (status, printed) = Serving::start(&session, line, 5).ended();
    assert_eq!(status, Some(0), "{printed}");
    assert!(printed.ends_with("haul: the ticket has expired, so the share ends\n"), "{printed}");
}

#[test]
fn a_kept_share_has_the_same_ticket_after_a_restart_until_it_is_revoked() {
    let session = session();
    let start = |options: &str| {
        let (serving, object) = Serving::json(&session, &format!("share --keep {options}"));
        (serving, object["ticket"].as_str().unwrap().to_owned())
    };
    let (serving, first) = start("photos");
    session.haul(&format!("cat {first}/one.jpg")).status(0).stdout("first");
    serving.end("INT");
    let (serving, again) = start("./photos");
    assert_eq!(first, again);
    session.haul(&format!("cat {first}/one.jpg")).status(0).stdout("first");
    let (other, writable) = start("--writable photos");
    assert_ne!(first, writable);
    let (third, owners) = start("--writable --owners photos");
    assert_ne!(writable, owners);
    third.end("INT");
    session.haul("share --revoke none").status(1).stderr_has("none: cannot revoke (");
    // An option without effect is refused.
    session.haul("share --revoke photos --no-lan").status(2).stderr_has("cannot be used with");
    session.haul("share --revoke photos").status(0).stdout("revoked 3 tickets\n");
    // The running shares refuse the tickets without a restart; the key stays the same.
    for ticket in [&first, &writable] {
        let message = session.haul(&format!("cat {ticket}/one.jpg")).status(1).err();
        assert!(message.contains("has been revoked"), "{message}");
    }
    serving.end("INT");
    other.end("INT");
    let (serving, next) = start("photos");
    assert!(next != first && next[..18] == first[..18], "{next}");
    serving.end("INT");
}

/// Formerly, only a ticket for exactly this path was revoked.
#[test]
fn revoking_a_path_revokes_a_ticket_for_several_paths_that_include_it() {
    let session = session();
    session.write("notes/a", "a");
    let (serving, _) = Serving::json(&session, "share --keep notes photos");
    session.haul("share --revoke photos").status(0).stdout("revoked 1 ticket\n");
    serving.end("INT");
}

#[test]
fn an_ephemeral_share_stores_nothing() {
    let session = session();
    let key = || {
        let line = "share --ephemeral photos --listen 127.0.0.1:0";
        let (serving, object) = Serving::json(&session, line);
        serving.end("INT");
        object["key"].as_str().unwrap().to_owned()
    };
    assert_ne!(key(), key());
    assert!(!session.has("home/.local/state/haul/identity.pem"));
    session.haul("share --ephemeral --keep photos").status(2);
}

#[test]
fn a_known_peer_is_a_location() {
    let session = session();
    let (serving, ticket) = share(&session, "--name pictures photos");
    session.write("ticket", &ticket);
    session.haul("peers").status(0).stdout("");
    session.haul("peers add nas @ticket").status(0).stdout("");
    session.haul("cat peer:nas/one.jpg").status(0).stdout("first");
    session.haul("ls peer:nas").status(0).stdout("deep/\nempty\nlink\none.jpg\n");
    session.haul("cp -q peer:nas/*.jpg .").status(0);
    let listed = session.haul("peers").status(0).out();
    assert!(listed.starts_with("nas  ") && listed.contains("  127.0.0.1:"), "{listed}");
    assert!(!listed.contains(&ticket[64..80]), "{listed}");
    let objects = session.haul("peers list --json").status(0).objects();
    assert!(objects[0]["event"] == "peer" && objects[0]["name"] == "nas", "{objects:?}");
    session.haul("peers rename nas box").status(0);
    session.haul("cat peer:box/one.jpg").status(0).stdout("first");
    session.haul("cat peer:nas/one.jpg").status(2).stderr_has("no peer has this name");
    session.haul("peers add nas photos").status(2).stderr_has("nor a spoken code");
    session.haul("peers forget box").status(0);
    session.haul("peers forget box").status(1).stderr_has("no peer is known as box");
    session.haul("peers").status(0).stdout("");
    with_input(&session, "peers add nas -", &format!("{ticket}\n")).status(0).stdout("");
    session.haul("cat peer:nas/one.jpg").status(0).stdout("first");
    serving.end("INT");
}

#[test]
fn files_of_a_ticket_are_received_only_after_a_yes() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    let prompt = "Receive 3 files, 11 B from \"photos\" into all? [y/N] ";
    let mut terminal = Terminal::start(&session, &format!("cp {ticket}/ all"));
    terminal.type_line(prompt, "");
    let (status, shown) = terminal.end();
    assert!(status == 1 && shown.contains("nothing was received"), "{status}: {shown}");
    assert!(!session.has("all"));
    let mut terminal = Terminal::start(&session, &format!("sync {ticket}/ all"));
    terminal.type_line(prompt, "y");
    let (status, shown) = terminal.end();
    assert_eq!(status, 0, "{shown}");
    session.haul("check photos all").status(0);
    for line in ["cp -y TICKET/ more", "cp -n TICKET/ none", "cp photos/one.jpg here"] {
        let line = line.replace("TICKET", &ticket);
        let (status, shown) = Terminal::start(&session, &line).end();
        assert!(status == 0 && !shown.contains("[y/N]"), "{status}: {shown}");
    }
    assert!(session.has("more/one.jpg") && !session.has("none"));
    serving.end("INT");
}

/// Formerly, `haul mv` and copies to many hosts wrote without a prompt.
#[test]
fn a_move_from_a_ticket_begins_only_after_a_yes() {
    let session = session();
    let (serving, ticket) = share(&session, "--writable photos");
    let line = format!("mv {ticket}/deep got");
    let mut terminal = Terminal::start(&session, &line);
    terminal.type_line("Receive 1 file, 6 B from \"photos\" into got? [y/N] ", "");
    let (status, shown) = terminal.end();
    assert!(status == 1 && shown.contains("nothing was received"), "{status}: {shown}");
    assert!(!session.has("got") && session.has("photos/deep/er/two.jpg"));
    let (status, shown) = Terminal::start(&session, &format!("mv -y {ticket}/deep got")).end();
    assert!(status == 0 && !shown.contains("[y/N]"), "{status}: {shown}");
    assert!(session.has("got/er/two.jpg") && !session.has("photos/deep"));
    let mut terminal = Terminal::start(&session, &format!("cp {ticket}/one.jpg 'node[1-2]:'"));
    terminal.type_line("Receive 1 file, 5 B from \"photos\" into node[1-2]:? [y/N] ", "n");
    let (status, shown) = terminal.end();
    assert!(status == 1 && shown.contains("nothing was received"), "{status}: {shown}");
    serving.end("INT");
}

#[test]
fn a_ticket_is_printed_as_a_qr_code() {
    let session = session();
    let serving = Serving::start(&session, "share --qr photos --listen 127.0.0.1:0", 8);
    assert!(serving.output.contains("ticket   haul1"), "{}", serving.output);
    assert!(serving.output.lines().nth(4).unwrap().starts_with("██"), "{}", serving.output);
    serving.end("INT");
}

#[test]
fn a_transfer_names_the_path_of_its_lanes() {
    let session = session().file("photos/big", "0123456789abcdef".repeat(1 << 17));
    let (serving, ticket) = share(&session, "photos");
    let copy = format!("cp --bwlimit 4M --overwrite always {ticket}/big got");
    let summary = session.haul(&format!("{copy} --json")).status(0).summary();
    assert_eq!(summary["link_path"]["kind"], "direct", "{summary}");
    let address = summary["link_path"]["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{summary}");
    let text = session.haul(&format!("{copy} -v")).status(0).err();
    assert!(text.contains(&format!("; path {address} (direct)")), "{text}");
    // Formerly, a transfer that ended within milliseconds reported nothing of its link.
    let line = format!("cp --json {ticket}/one.jpg got-one");
    let summary = session.haul(&line).status(0).summary();
    assert_eq!(summary["link_path"]["kind"], "direct", "{summary}");
    assert_eq!(summary["lanes"], 1, "{summary}");
    assert!(summary["connect_ms"].is_f64(), "{summary}");
    // A local copy has no path to name.
    let summary = session.haul("cp --json photos/big other").status(0).summary();
    assert!(summary["link_path"].is_null(), "{summary}");
    serving.end("INT");
}

/// Formerly, the second peer's location was taken for the first one's.
#[test]
fn the_sizes_of_two_peers_are_both_counted() {
    let session = session().file("docs/a", "12345");
    let ((one, first), (two, second)) = (share(&session, "photos"), share(&session, "docs"));
    let counted = session.haul(&format!("du -s {first} {second}")).status(0).out();
    assert_eq!(counted.lines().count(), 2, "{counted}");
    one.end("INT");
    two.end("INT");
}

/// Formerly, the second `-` was a path.
#[test]
fn standard_input_is_shared_only_once() {
    let session = Session::new();
    with_input(&session, "share - -", "x").status(2).stderr_has("can be shared only once");
}

#[test]
fn standard_input_is_shared_as_a_file_until_the_share_ends() {
    let session = session();
    let mut command = session.command("share --name a.txt - --listen 127.0.0.1:0 --json");
    command.stdin(fs::File::open(session.path("photos/one.jpg")).unwrap());
    let serving = Serving::spawn(command, 1);
    let object: serde_json::Value = serde_json::from_str(&serving.output).unwrap();
    let ticket = object["ticket"].as_str().unwrap();
    session.haul(&format!("ls {ticket}")).status(0).stdout("a.txt\n");
    for _ in 0..2 {
        session.haul(&format!("cat {ticket}/a.txt")).status(0).stdout("first");
    }
    // TMPDIR is the session's directory.
    let spools = || {
        let names =
            fs::read_dir(session.path("")).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("haul-share-")).count()
    };
    assert_eq!(spools(), 1);
    serving.end("INT");
    assert_eq!(spools(), 0);
    session.haul("share --keep -").status(2).stderr_has("--keep cannot be used with");
    session.haul("share --name a/b -").status(2).stderr_has("--name must be a file name");
}

#[test]
fn a_terminal_shows_clients_and_their_traffic() {
    let name = "big\u{1b}[2J";
    let session = Session::new();
    session.write(format!("data/{name}"), vec![7_u8; 15_000_000]);
    let mut terminal = Terminal::start(&session, "share --ephemeral data --listen 127.0.0.1:0");
    terminal.until("ticket   ");
    let ticket = terminal.rest_of_line();
    terminal.until("until Ctrl-C.");
    let line = format!("cp -q --bwlimit 2M {ticket}/ got");
    let mut child = session.command(&line).spawn().unwrap();
    terminal.until("  127.0.0.1 direct  big\\033[2J");
    terminal.until(" MiB/s");
    assert!(child.wait().unwrap().success());
    terminal.until(": sent 14.");
    terminal.press("/s (direct)", "\u{3}");
    let (status, shown) = terminal.end();
    assert!(status == 0 && shown.contains(" stopping"), "{status}: {shown}");
    assert!(!shown.contains(name), "{shown:?}");
}

#[test]
fn the_end_of_a_session_is_reported_with_its_traffic() {
    let session = session();
    for (options, is_logged) in [("", false), ("-q", false), ("-v", true)] {
        let (serving, ticket) = share(&session, &format!("{options} photos"));
        session.haul(&format!("cat {ticket}/one.jpg")).status(0);
        let rest = serving.rest("INT");
        let objects = rest.lines().map(|line| serde_json::from_str(line).unwrap());
        let objects: Vec<serde_json::Value> = objects.collect();
        let Some(left) = objects.iter().find(|object| object["action"] == "left") else {
            assert!(!is_logged && objects.is_empty(), "{rest}");
            continue;
        };
        assert!(is_logged && left["event"] == "client" && left["route"] == "direct", "{rest}");
        assert!(left["sent_bytes"].as_u64().unwrap() >= 5 && left["received_bytes"] == 0, "{rest}");
        assert!(left["seconds"].is_f64() && left["bytes_per_second"].is_u64(), "{rest}");
    }
    let serving = Serving::start(&session, "share photos --listen 127.0.0.1:0", 5);
    let ticket = serving.output.lines().find_map(|line| line.strip_prefix("ticket   ")).unwrap();
    session.haul(&format!("cat {ticket}/one.jpg")).status(0);
    let (status, printed) = serving.end("INT");
    assert_eq!(status, Some(0));
    assert!(printed.contains(": sent ") && printed.contains("/s (direct)\n"), "{printed}");
}

/// Formerly, the command took this for a lost connection, and retried for minutes.
#[test]
fn a_command_fails_at_once_when_the_share_ends() {
    let session = Session::new();
    session.write("data/big", vec![7_u8; 60_000_000]);
    let (serving, ticket) = share(&session, "data");
    let line = format!("cp --json --bwlimit 5M {ticket}/big .");
    let (child, mut output) = moving(&session, &line, 1_000_000);
    let start = Instant::now();
    assert_eq!(serving.end("INT").0, Some(0));
    let mut printed = String::new();
    output.read_to_string(&mut printed).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    printed += &String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    assert!(printed.contains("the sharer has ended the share"), "{printed}");
    // Without a client, it ends at once. The machine may stall for a moment.
    let is_quick = (0..10).any(|_| {
        let (serving, _) = share(&session, "data");
        let start = Instant::now();
        serving.end("TERM");
        start.elapsed() < Duration::from_secs(2)
    });
    assert!(is_quick, "a share without clients takes 2 s or more to end");
}

#[test]
fn a_browser_gets_a_page_with_a_password() {
    let session = session().file("list.txt", "list").file("secret", "x").directory("home");
    let start = |options: &str| {
        let line = format!("share --web=127.0.0.1:0 --listen 127.0.0.1:0 {options}");
        let (serving, object) = Serving::json(&session, &line);
        let web = &object["web"];
        let login = format!("machine 127.0.0.1 login haul password {}\n", &web["password"]);
        session.write("netrc", login.replace('"', ""));
        let url = web["urls"][0].as_str().unwrap().to_owned();
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        assert_eq!(web["fingerprint"].as_str().unwrap().len(), 95);
        (serving, url)
    };
    let curl = |rest: &str| {
        let ca = "--cacert home/.local/state/haul/dav_self_signed.pem";
        session.tool(&format!("curl -sS {ca} {rest}"))
    };
    let get = |url: &str| curl(&format!("--netrc-file netrc {url}"));
    let status = |rest: &str| curl(&format!("-o /dev/null -w %{{response_code}} {rest}"));
    let as_user = |rest: &str| status(&format!("--netrc-file netrc {rest}"));

    let (serving, url) = start("photos list.txt");
    let page = get(&url);
    assert!(page.contains("photos/") && page.contains("list.txt"), "{page}");
    assert_eq!(get(&format!("{url}photos/deep/er/two.jpg")), "second");
    assert_eq!(get(&format!("{url}list.txt")), "list");
    assert_eq!(status(&url), "401");
    assert_eq!(as_user(&format!("{url}secret")), "404");
    assert_eq!(as_user(&format!("-T list.txt {url}photos/new")), "403");
    serving.end("INT");

    let (serving, url) = start("--writable photos list.txt");
    assert_eq!(as_user(&format!("-T list.txt {url}photos/new")), "201");
    assert_eq!(session.read("photos/new"), "list");
    for fixed in ["-T secret URLlist.txt", "-T secret URLother", "-X DELETE URLphotos"] {
        assert_eq!(as_user(&fixed.replace("URL", &url)), "403", "{fixed}");
    }
    assert!(session.read("list.txt") == "list" && session.has("photos/one.jpg"));
    serving.end("INT");

    let (serving, url) = start("--writable photos");
    assert_eq!(as_user(&format!("-T list.txt {url}top")), "201");
    assert_eq!(session.read("photos/top"), "list");
    serving.end("INT");
    let left = fs::read_dir(session.path("")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|name| name.starts_with("haul-share-")), "{left:?}");
    session.haul("share --web --one-use photos").status(2);
    session.haul("share --web 127.0.0.1:0 photos").status(2).stderr_has("equals sign");
}

#[test]
fn the_page_is_printed_with_its_password_and_a_qr_code() {
    let session = session().directory("home");
    let line = "share --ephemeral --web=127.0.0.1:0 photos --listen 127.0.0.1:0";
    let serving = Serving::start(&session, line, 10);
    for words in
        ["web      https://127.0.0.1:", "user     haul\n", "password ", "cert     SHA-256 "]
    {
        assert!(serving.output.contains(words), "{}", serving.output);
    }
    assert!(!session.has("home/.local/state/haul/dav_self_signed.pem"));
    serving.end("INT");
    let mut serving = Serving::start(&session, &format!("{line} --qr"), 1);
    assert!((0..100).any(|_| serving.line().starts_with("web      ")));
    assert!(serving.line().starts_with("██"));
    serving.end("INT");
}

/// Formerly, nothing was printed.
#[test]
fn a_share_that_does_not_respond_is_reported_after_ten_seconds() {
    let session = session();
    let (serving, ticket) = share(&session, "photos");
    serving.signal("STOP");
    let mut command = session.command(&format!("ls {ticket}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut report = String::new();
    errors.read_line(&mut report).unwrap();
    let expected = format!("haul: waiting for {}…: connection (1", &ticket[..18]);
    assert!(report.starts_with(&expected), "{report}");
    serving.signal("CONT");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && rest.is_empty(), "{rest}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("one.jpg"));
    serving.end("INT");
}
