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
fn every_shell_gets_its_completions() {
    let session = Session::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        session
            .haul(&format!("completions {shell}"))
            .status(0)
            .stderr("")
            .stdout_has("HAUL_COMPLETE");
    }
    session.haul("completions tcsh").status(2);
}

#[test]
fn the_manual_page_has_every_command_and_option() {
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
        "SERVE SFTP",
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
    session.haul("man cp").status(0).stdout_has(".TH HAUL-CP 1");
    session.haul("man cq").status(2).stderr("haul: no command 'cq'\n");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
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
