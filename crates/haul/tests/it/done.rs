//! The end of a transfer: `--on-done`, `--bell`; and the order of files.

use std::path::Path;

use crate::session::Session;

/// Variables with secrets. Of the programs that haul starts, only haul itself and commands that print a password get
/// them.
pub(crate) const SECRETS: [(&str, &str); 6] = [
    ("HAUL_PASSWORD", "secret"),
    ("HAUL_PASSWORD_NAS", "secret"),
    ("HAUL_TOKEN", "secret"),
    ("HAUL_TOKEN_NAS", "secret"),
    ("HAUL_TICKET", "secret"),
    ("HAUL_BRIDGE_TOKEN", "secret"),
];

#[test]
fn the_on_done_command_gets_the_outcome_but_no_secrets() {
    let session = Session::new().file("src/a", "aaa").file("src/b", "bb");
    session.write(
        "home/script",
        "env | grep ^HAUL_ | grep -vE '^HAUL_(LAN|PORT_MAPPING)=' | sort > $HOME/variables; echo printed",
    );
    let mut command = session.command("cp --json src dst --on-done");
    command.arg(". $HOME/script").envs(SECRETS);
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    // Its output is not part of the results.
    assert_eq!(String::from_utf8_lossy(&out.stderr), "printed\n");
    let variables = session.read("home/variables");
    let mut lines = variables.lines();
    let mut next = || lines.next().unwrap_or_default();
    assert_eq!((next(), next(), next()), ("HAUL_BYTES=5", "HAUL_FAILED=0", "HAUL_FILES=2"));
    assert!(next().starts_with("HAUL_SECONDS=0."), "{variables}");
    assert_eq!((next(), next()), ("HAUL_STATUS=0", ""), "{variables}");
}

#[test]
fn the_on_done_command_runs_after_failures_too_and_its_own_failure_is_reported() {
    let session = Session::new()
        .file("a", "a")
        .file("s/b", "b")
        .file("config.toml", "[defaults]\non-done = \"exit 3\"\n");
    let failed = "haul: --on-done: cannot run the command (exit status: 3)\n";
    for line in ["cp a b", "sync s t/x/y", "mv a c"] {
        let ran = session.haul(&format!("{line} --config config.toml"));
        assert_eq!(ran.err().matches(failed).count(), 1, "{line}: {}", ran.err());
        ran.status(1);
    }
    session.write("a", "a");
    let mut command = session.command("cp none x --on-done");
    let out = command.arg("echo $HAUL_STATUS $HAUL_FAILED $HAUL_FILES").output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text.contains("none: cannot open (not found)\n") && text.ends_with("\n1 1 0\n"),
        "{text}"
    );
    // Nothing was done: wrong usage, or a dry run.
    for line in ["cp --config config.toml - a d", "cp --config config.toml -n a d"] {
        assert!(!session.haul(line).err().contains("--on-done"), "{line}");
    }
}

#[test]
fn the_bell_rings_on_a_terminal_only() {
    let session = Session::new().file("a", "a");
    let ran = session.haul("cp --bell --color auto a b").status(0);
    assert!(!ran.err().contains('\x07') && !ran.err().contains('\x1b'), "{:?}", ran.err());
    let text = crate::terminal::on_a_terminal(&session, "cp --bell a b");
    assert!(text.contains('\x07'), "{text:?}");
}

/// The names of the copied files, in the order in which `-v` prints them.
fn copied(session: &Session, order: &str) -> Vec<String> {
    drop(std::fs::remove_dir_all(session.path("dst")));
    let ran = session.haul(&format!("cp -v --files 1 {order} src/ dst")).status(0);
    let out = ran.out();
    let name = |line: &str| {
        let path = line.strip_prefix("copied ")?.split(" (").next()?;
        Some(Path::new(path).file_name()?.to_string_lossy().into_owned())
    };
    out.lines().filter_map(name).collect()
}

#[test]
fn files_are_copied_in_the_requested_order() {
    let session = Session::new();
    // Small ones that go in batches, and large ones.
    for (name, bytes, day) in [
        ("d/b", 3_000_000, 2),
        ("e/a", 10, 4),
        ("d/e", 400_000, 1),
        ("c", 20, 5),
        ("e/d", 2_000_000, 3),
    ] {
        session.write(format!("src/{name}"), vec![1; bytes]);
        session.tool(&format!("touch -d 2026-01-0{day} src/{name}"));
    }
    assert_eq!(copied(&session, "--order size"), ["a", "c", "e", "d", "b"]);
    assert_eq!(copied(&session, "--order -size"), ["b", "d", "e", "c", "a"]);
    assert_eq!(copied(&session, "--order time"), ["e", "b", "d", "a", "c"]);
    assert_eq!(copied(&session, "--order time:desc"), ["c", "a", "d", "b", "e"]);
    assert_eq!(copied(&session, "--order name"), ["c", "b", "e", "a", "d"]);
    session
        .haul("cp --order length src/ dst")
        .status(2)
        .stderr_has("is not one of size, name, time");
}

/// Names that a file system may treat as equal wait until all others are copied; the order must not wait for
/// them.
#[test]
fn the_order_does_not_deadlock_on_names_that_differ_in_case() {
    let session = Session::new();
    for name in ["a", "A", "b", "B", "bb"] {
        session.write(format!("src/{name}"), name);
    }
    session.haul("cp --order name src dst").status(0);
    session.tool("diff -r src dst/src");
}

#[test]
fn more_files_than_can_be_sorted_at_once_are_all_copied() {
    let session = Session::new();
    for number in 0..12_000 {
        let path = session.path(format!("src/{}/{number}", number % 7));
        if number < 7 {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        std::fs::write(path, number.to_string()).unwrap();
    }
    let summary = session.haul("cp --json --order -name src dst").status(0).summary();
    assert_eq!(summary["files"], 12_000);
    session.tool("diff -rq src dst/src");
}
