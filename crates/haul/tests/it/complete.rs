//! Completion: the candidates that a shell gets when Tab is pressed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::dav;
use crate::session::{Session, isolate};
use crate::sftp::SftpSession;

/// The candidates that haul prints for fish, for the last word.
fn fish(session: &Session, words: &[&str]) -> Vec<String> {
    let mut command = session.command("");
    command.env("HAUL_COMPLETE", "fish").env("XDG_CACHE_HOME", session.path("cache"));
    let output = command.arg("--").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let values = text.lines().map(|line| line.split('\t').next().unwrap().to_owned());
    values.collect()
}

/// The candidates that the completion script of bash offers for the last word. bash splits words at colons.
fn bash(session: &Session, words: &[&str]) -> Vec<String> {
    bash_by(session, &session.haul("completions bash").status(0).out(), words)
}

/// The same with a given completion script.
fn bash_by(session: &Session, script: &str, words: &[&str]) -> Vec<String> {
    let mut divided = Vec::new();
    for (n, word) in words.iter().enumerate() {
        let mut rest = *word;
        // A word that begins with a quote is not split.
        while !word.starts_with('"')
            && let Some((piece, after)) = rest.split_once(':')
        {
            divided.extend([piece.to_owned(), ":".to_owned()]);
            rest = after;
        }
        // After a colon at the end of the line the colon is the last word.
        if !rest.is_empty() || !word.contains(':') || n + 1 < words.len() {
            divided.push(rest.to_owned());
        }
    }
    divided.retain(|piece| !piece.is_empty() || words.last() == Some(&""));
    let quoted: Vec<String> = divided.iter().map(|piece| format!("'{piece}'")).collect();
    let text = format!(
        "{script}\nCOMP_LINE='{line}'\nCOMP_WORDS=({words})\nCOMP_CWORD={at}\n_haul\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        line = words.join(" "),
        words = quoted.join(" "),
        at = divided.len() - 1
    );
    let program = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    isolate(&mut command);
    command.args(["--norc", "-c", &text]).current_dir(session.path("")).env("PATH", path);
    command.env("HOME", session.path("home")).env("XDG_CACHE_HOME", session.path("cache"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(ToOwned::to_owned).filter(|line| !line.is_empty()).collect()
}

#[test]
fn options_commands_and_local_files_are_completed() {
    let session = Session::new().file("photos/one", "1").file("notes", "n");
    assert_eq!(fish(&session, &["haul", "ver"]), ["verify"]);
    assert_eq!(fish(&session, &["haul", "cp", "--bwl"]), ["--bwlimit"]);
    assert_eq!(fish(&session, &["haul", "cp", "pho"]), ["photos/"]);
    assert_eq!(bash(&session, &["haul", "cp", "--bwl"]), ["--bwlimit"]);
    assert_eq!(bash(&session, &["haul", "cp", "not"]), ["notes"]);
}

#[test]
fn remotes_and_hosts_that_ssh_knows_are_completed() {
    let session = Session::new()
        .file("home/.config/haul/config.toml", "[remote.nas]\nurl = \"sftp://127.0.0.1:1/\"\n")
        .file("home/.ssh/config", "Host nashville *.example\n  User ada\n")
        .file("home/.ssh/known_hosts", "nancy ssh-ed25519 AAAA\n|1|a=|b= ssh-ed25519 AAAA\n");
    assert_eq!(fish(&session, &["haul", "ls", "na"]), ["nancy:", "nas:", "nashville:"]);
    assert_eq!(fish(&session, &["haul", "ls", "ada@nash"]), ["ada@nashville:"]);
    assert_eq!(bash(&session, &["haul", "ls", "nas"]), ["nas:", "nashville:"]);
    // An argument that is the name of a remote has no colon.
    for command in ["show", "remove"] {
        assert_eq!(fish(&session, &["haul", "config", command, "n"]), ["nas"]);
    }
    assert_eq!(fish(&session, &["haul", "config", "add", "x", "nash"]), ["nashville:"]);
}

#[test]
fn paths_on_an_ssh_server_are_completed() {
    let sftp = SftpSession::start();
    let session = &sftp.session;
    for name in ["far/photos/a b.txt", "far/photos/ab", "far/phone", "far/.hidden"] {
        session.write(name, "x");
    }
    let line = |last: &str| {
        let line = sftp.line(&format!("ls @/{last}"));
        format!("haul {line}").split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let candidates = |last: &str| {
        let words = line(last);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let base = words.last().unwrap().strip_suffix(last).unwrap().to_owned();
        let all = fish(session, &words);
        all.iter().map(|all| all.strip_prefix(&base).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(candidates("ph"), ["phone", "photos/"]);
    assert_eq!(candidates("photos/a"), ["photos/a%20b.txt", "photos/ab"]);
    assert_eq!(candidates("."), [".hidden"]);
    assert_eq!(candidates("nothing"), [""; 0]);
    // A recent listing is cached, and only the user can read it.
    session.write("far/phantom", "x");
    assert_eq!(candidates("ph"), ["phone", "photos/"]);
    let cache = session.path("cache/haul/completion");
    assert_eq!(cache.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for entry in std::fs::read_dir(cache).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn bash_completes_paths_after_the_colon_of_a_remote() {
    let session = Session::new();
    let server = dav::haul(&session);
    std::fs::create_dir(server.root.join("photos")).unwrap();
    std::fs::write(server.root.join("photos/a b"), "x").unwrap();
    std::fs::write(server.root.join("photos/it's"), "x").unwrap();
    std::fs::write(server.root.join("phone"), "x").unwrap();
    for name in ["z{b,c}", "z$(touch PWNED)", "z';touch PWNED;#", "z!", "zz"] {
        std::fs::write(server.root.join(name), "x").unwrap();
    }
    session.write(
        "home/.config/haul/config.toml",
        format!("[remote.nas]\nurl = \"{}\"\n", server.url),
    );
    assert_eq!(bash(&session, &["haul", "ls", "nas:ph"]), ["phone", "photos/"]);
    assert_eq!(
        bash(&session, &["haul", "cp", "x", "nas:photos/"]),
        ["photos/a\\ b", "photos/it\\'s"]
    );
    assert_eq!(bash(&session, &["haul", "ls", "nas:photos/i"]), ["photos/it\\'s"]);
    // Names with special characters of the shell.
    assert_eq!(
        bash(&session, &["haul", "ls", "nas:z"]),
        ["z\\!", "z\\$\\(touch\\ PWNED\\)", "z\\'\\;touch\\ PWNED\\;#", "zz", "z\\{b\\,c\\}"]
    );
    // Within quotes the word is not split, and names with characters that are special there are not offered.
    assert_eq!(bash(&session, &["haul", "ls", "\"nas:z"]), ["nas:zz", "nas:z{b,c}"]);
    assert_eq!(bash(&session, &["haul", "ls", "nas:"]).len(), 7);
    assert!(!session.has("PWNED") && !session.has("home/PWNED"), "a name was executed");
}

/// Formerly, the path was not quoted, and the placeholder `BIN` of the script was replaced in it, too.
#[test]
fn bash_calls_the_program_that_printed_the_script() {
    let session = Session::new().file("photo", "").directory("BIN's 1");
    let haul = session.path("BIN's 1/haul");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_haul"), &haul).unwrap();
    let mut command = Command::new(&haul);
    isolate(&mut command).env("HAUL_COMPLETE", "bash").env("HOME", session.path("home"));
    let script = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(bash_by(&session, &script, &["haul", "ls", "ph"]), ["photo"]);
    // The script does not call the `haul` in PATH.
    std::fs::remove_file(&haul).unwrap();
    assert_eq!(bash_by(&session, &script, &["haul", "ls", "ph"]), [""; 0]);
}

/// Formerly, `--header`, `--cookie` and `--proxy` had no influence on the key of a cached listing.
#[test]
fn a_cached_listing_is_used_for_the_same_options_only() {
    let session = Session::new();
    let server = dav::haul(&session);
    let write = |name: &str| std::fs::write(server.root.join(name), "x").unwrap();
    let candidates = |options: &[&str]| {
        let word = format!("{}ph", server.url);
        let words = [&["haul", "ls"][..], options, &[word.as_str()]].concat();
        let all = fish(&session, &words);
        all.iter().map(|all| all.strip_prefix(&server.url).unwrap().to_owned()).collect::<Vec<_>>()
    };
    write("phone");
    let options: [&[&str]; 5] = [
        &["--header", "X-Token: one"],
        &["--header", "X-Token: two"],
        &["--cookie", "a=one"],
        &["--cookie", "a=two"],
        &["--proxy", "none"],
    ];
    for given in options {
        assert_eq!(candidates(given), ["phone"], "{given:?}");
    }
    write("photo");
    for given in options {
        assert_eq!(candidates(given), ["phone"], "{given:?}");
    }
    assert_eq!(candidates(&["--header", "X-Token: three"]), ["phone", "photo"]);
    assert_eq!(candidates(&["--cookie", "a=three"]), ["phone", "photo"]);
    assert_eq!(candidates(&["--proxy", "none", "--cookie", "a=one"]), ["phone", "photo"]);
    let cache = session.path("cache/haul/completion");
    assert_eq!(std::fs::read_dir(cache).unwrap().count(), options.len() + 3);
}

/// The wait for a server that does not respond is bounded.
#[test]
fn a_server_that_cannot_be_listed_completes_to_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let session = Session::new();
    assert_eq!(fish(&session, &["haul", "ls", &format!("sftp://127.0.0.1:{port}/a")]), [""; 0]);
    assert_eq!(fish(&session, &["haul", "ls", "ftp://127.0.0.1:1/a"]), [""; 0]);
}
