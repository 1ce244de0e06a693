//! Wrong usage: an error with its cause, hints, and nothing done; and forms of arguments that are accepted.

use crate::session::Session;

#[test]
fn no_command_prints_the_help() {
    Session::new().haul("").status(2).stderr_has("Usage: haul");
}

/// Formerly, with an option it was named in several lines of the argument parser.
#[test]
fn a_missing_command_is_named() {
    let session = Session::new();
    for line in ["--color never", "serve --color never", "serve --json", "--json serve", "--json"] {
        let ran = session.haul(line).status(2);
        let (out, err) = (ran.out(), ran.err());
        assert!((out + &err).contains("a command is missing; --help lists them"), "{line}: {err}");
    }
}

#[test]
fn a_misspelt_option_gets_a_suggestion() {
    Session::new()
        .haul("cp --verfy a b")
        .status(2)
        .stderr_has("unexpected argument '--verfy' found")
        .stderr_has("a similar argument exists: '--verify'");
    Session::new()
        .haul("cp --overwrite allways a b")
        .status(2)
        .stderr_has("a similar value exists: 'always'");
}

/// Formerly, a similar word was suggested: `--resume` for `--checksum`.
#[test]
fn an_option_of_another_tool_gets_a_hint() {
    let session = Session::new().file("a", "a");
    session.haul("cp --transfers a b").status(2).stdout("").stderr(
        "haul: unknown option '--transfers'\n\
         hint: write --files N: files in flight at once; by default haul measures the path\n",
    );
    let all = [
        ("--fuzzy", "'--fuzzy'", "no delta transfer"),
        ("--usermap=a:b", "'--usermap'", "--chown USER:GROUP"),
        ("--inplace", "'--inplace'", "partial files resume"),
        ("--delete", "'--delete'", "haul sync --delete"),
        ("--transfers", "'--transfers'", "--files N"),
        ("--limit-rate", "'--limit-rate'", "--bwlimit RATE"),
        ("--link-dest=../old", "'--link-dest'", "no hard links to an earlier copy"),
    ];
    for (option, named, hint) in all {
        let ran = session.haul(&format!("cp {option} a b")).status(2);
        ran.stderr_has(&format!("unknown option {named}")).stderr_has(hint);
    }
    assert!(!session.has("b"));
}

#[test]
fn the_error_for_a_value_out_of_range_names_the_range() {
    let session = Session::new();
    session.haul("cp --block-size 2G a b").status(2).stderr_has("'2G' is not between 1K and 1G");
    session.haul("cp --lanes 0 a b").status(2).stderr_has("not a number between 1 and 256");
    session.haul("cp --bwlimit fast a b").status(2).stderr_has("'fast' is not a rate; write 10M");
    session.haul("cp --exclude a[ a b").status(2).stderr_has("'[' without ']'");
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let session = Session::new().file("a", "a");
    session
        .haul("cp --manifest --digest none a b")
        .status(2)
        .stderr("haul: a manifest lists digests: --manifest cannot be used with --digest none\n");
    session.haul("cp -q -v a b").status(2);
    assert!(!session.has("b"));
}

#[test]
fn an_invalid_ticket_is_named_without_its_secret() {
    let session = Session::new().file("a", "a");
    let ticket = "haul1abcdefghijklmnopqrstuvwxyz234567/x";
    let ran = session.haul(&format!("cp a {ticket}")).status(1);
    ran.stderr_has("haul1abcd…/x: cannot use the ticket (");
}

#[test]
fn a_local_name_with_a_colon_is_explained() {
    // Port 1 is closed.
    let ran = Session::new().file("127.0.0.1:b", "a").haul("ls -F none -P 1 127.0.0.1:b").status(1);
    ran.stderr_has("cannot connect").stderr_has(
        "hint: '127.0.0.1:b' is read as a host and a path; for the local file of that name write \
         ./127.0.0.1:b\n",
    );
}

/// `.invalid` is reserved for names that do not exist (RFC 6761).
#[test]
fn the_error_for_an_unknown_host_lists_similar_remotes() {
    let config = "[remote.nas-backup]\nurl = \"sftp://h/\"\n[remote.other]\nurl = \"/tmp\"\n";
    let session = Session::new().file("c.toml", config);
    let ran = session.haul("ls --config c.toml -F none nas-backup.invalid:x").status(1);
    ran.stderr_has("\nhint: the configuration has nas-backup:\n");
}

#[test]
fn a_password_in_a_location_is_refused_and_not_repeated() {
    let ran = Session::new().haul("ls sftp://ada:geheim@host/x").status(2);
    assert!(ran.err().starts_with("haul: 'sftp://ada:***@host/x': a password does not belong"));
    assert!(!ran.err().contains("geheim"));
}

#[test]
fn the_error_for_an_unknown_profile_lists_the_known_ones() {
    Session::new()
        .haul("cp --profile fast a b")
        .status(2)
        .stderr("haul: unknown profile 'fast'; the profiles are safe, default, aggressive\n");
}

/// The page that lists all options.
fn options_page() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
    std::fs::read_to_string(page).unwrap()
}

/// The words between backticks that begin with a dash.
fn options(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.starts_with('-') && !word.contains(' ')).collect()
}

#[test]
fn every_option_of_another_tool_gets_the_hint_that_is_documented() {
    let page = options_page();
    let (_, table) = page.split_once("| option of another tool | with haul |").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let session = Session::new().file("a", "a");
    let mut count = 0;
    for row in rows {
        let (names, hint) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap();
        for option in options(names) {
            let command = if option == "--delete" { "cp" } else { "sync" };
            let ran = session.haul(&format!("{command} {option} a b")).status(2);
            ran.stderr(&format!("haul: unknown option '{option}'\nhint: {hint}\n"));
            count += 1;
        }
    }
    assert!(count > 80, "{count}");
    assert!(!session.has("b"));
}

#[test]
fn every_option_that_is_documented_as_accepted_is_accepted() {
    let page = options_page();
    let (_, rest) = page.split_once("These are accepted and change nothing").unwrap();
    let (accepted, _) = rest.split_once("\n\n").unwrap();
    let accepted = options(accepted);
    assert!(accepted.len() >= 20, "{accepted:?}");
    for option in accepted {
        let session = Session::new().file("a", "a");
        session.haul(&format!("cp {option} a b")).status(0);
        session.write("s/f", "f");
        session.haul(&format!("sync {option} s d")).status(0);
        assert_eq!((session.read("b"), session.read("d/f")), ("a".into(), "f".into()), "{option}");
    }
}

#[test]
fn with_json_a_usage_error_is_an_object() {
    let session = Session::new().file("a", "a");
    for (line, message) in [
        ("cp --json --transfers 8 a b", "unknown option '--transfers'"),
        ("cp --json a", "the following required arguments were not provided"),
        ("cp --json --memory 1M a b", "invalid value '1M'"),
        ("cp --json --verify no a b", "the value of --verify comes after an equals sign"),
        ("cp --json --suffix x a b", "--suffix x needs --backup"),
    ] {
        let ran = session.haul(line).status(2).stderr("");
        let objects = ran.objects();
        assert_eq!(objects.len(), 1, "{line}");
        assert_eq!((&objects[0]["event"], &objects[0]["kind"]), (&"error".into(), &"usage".into()));
        let text = objects[0]["message"].as_str().unwrap();
        assert!(text.contains(message), "{line}: {text}");
        assert_eq!(objects[0]["schema"], 1);
    }
    let ran = session.haul("cp --json a b").status(0);
    let objects = ran.objects();
    assert!(objects.len() > 1 && objects[0]["schema"] == 1 && objects[1]["schema"].is_null());
}

#[test]
fn a_file_url_is_a_local_path_and_a_windows_path_is_not() {
    let session = Session::new().file("a b", "x");
    let url = format!("file://{}", session.path("a%20b").display());
    session.haul(&format!("cp {url} c")).status(0);
    session.haul(&format!("cp {} d", url.replacen("://", "://localhost", 1))).status(0);
    assert_eq!((session.read("c"), session.read("d")), ("x".into(), "x".into()));
    session.haul("cp file://host/x y").status(2).stderr_has("has no host but localhost");
    session.haul("cp C:\\Users\\x y").status(2).stderr_has("this is a Windows path");
}

/// Formerly, the last SOURCE before an option was taken for DEST, which is how clap parses it.
#[test]
fn options_may_stand_between_source_and_dest() {
    let session = Session::new().file("a", "1").file("b", "2");
    session.haul("cp a b -q dst/").status(0);
    session.haul("cp a --bwlimit 50M one").status(0);
    session.haul("mv one -q two").status(0);
    assert_eq!((session.read("dst/b"), session.read("two")), ("2".to_owned(), "1".to_owned()));
    session.haul("ls a -l b --nonsense").status(2);
}
