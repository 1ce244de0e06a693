//! Help, completions and the manual page.

use crate::session::Session;

#[test]
fn help_and_version_are_results() {
    let session = Session::new();
    session.haul("--help").status(0).stderr("").stdout_has("Exit status:");
    session.haul("cp --help").status(0).stdout_has("DEST/DIR, whether DEST exists or not");
    session.haul("--version").status(0).stdout(concat!("haul ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn every_shell_has_completions() {
    let session = Session::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        session
            .haul(&format!("completions {shell}"))
            .status(0)
            .stderr("")
            .stdout_has("HAUL_COMPLETE");
    }
    // Packages install the script where zsh loads it at the first Tab.
    session
        .haul("completions zsh")
        .stdout_has("#compdef haul\n")
        .stdout_has("$funcstack[1] == _haul");
    session.haul("completions tcsh").status(2);
}

#[test]
fn the_manual_page_has_commands_and_options() {
    let session = Session::new();
    let page = session.haul("man").status(0).out();
    assert!(page.contains(".TH HAUL"), "{page}");
    for heading in [
        "CP",
        "SYNC",
        "MV",
        "LS",
        "CAT",
        "DU",
        "CHECK",
        "VERIFY",
        "RM",
        "MKDIR",
        "MOUNT",
        "SERVE SFTP",
        "PEERS",
        "PEERS RENAME",
        "CONFIG SHOW",
        "CONFIG ADD",
        "DEMO",
        "COMPLETIONS",
        "MAN",
    ] {
        assert!(page.contains(&format!(".SH \"{heading}\"")), "{heading}");
    }
    for option in [
        "\\-\\-block\\-size",
        "\\-\\-include",
        "\\-\\-strict",
        "\\-\\-json",
        "\\-\\-authorized\\-keys",
    ] {
        assert!(page.contains(option), "{option}");
    }
    session.haul("man cp").status(0).stdout_has(".TH HAUL-CP 1 \"\" \"haul ");
    session.haul("man cq").status(2).stderr("haul: no command 'cq'\n");
}

/// Packages have a page for each command, which `man haul-cp` finds by its file name.
#[test]
fn every_command_gets_a_section_and_a_manual_page_of_its_own() {
    let session = Session::new();
    session.haul("man --dir pages/man1").status(0).stdout("").stderr("");
    let mut pages: Vec<_> = std::fs::read_dir(session.path("pages/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let help = session.haul("--help").out();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let mut expected = vec!["haul.1".to_owned()];
    let named = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let config = ["add", "check", "edit", "list", "path", "remove", "show"];
    let below = config.map(|name| format!("config-{name}"));
    let peers = ["peers-add", "peers-forget", "peers-list", "peers-rename"];
    let below = below.iter().map(String::as_str).chain(["serve-dav", "serve-sftp"]).chain(peers);
    let whole = session.read("pages/man1/haul.1");
    for name in named.filter(|name| !["", "help"].contains(name)).chain(below) {
        // These two only have subcommands.
        if !["config", "serve"].contains(&name) {
            let heading = name.replace('-', " ").to_uppercase();
            assert!(whole.contains(&format!(".SH \"{heading}\"")), "{heading}");
        }
        let page = session.read(&format!("pages/man1/haul-{name}.1"));
        assert!(page.contains(&format!(".TH HAUL-{} 1", name.to_uppercase())), "{page}");
        expected.push(format!("haul-{name}.1"));
    }
    expected.sort();
    assert_eq!(pages, expected);
    assert!(pages.len() > 15, "{pages:?}");
    assert_eq!(whole, session.haul("man").out());
    session.haul("man cp --dir pages").status(2);
    session.write("file", "");
    session.haul("man --dir file").status(1).stderr("haul: file: cannot create (already exists)\n");
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_not_an_error() {
    let session = Session::new();
    let line = format!("{} man | head -1", env!("CARGO_BIN_EXE_haul"));
    let output = std::process::Command::new("bash")
        .args(["-o", "pipefail", "-c", &line])
        .current_dir(session.path(""))
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
