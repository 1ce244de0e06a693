//! The configuration file.

use crate::session::Session;

#[test]
fn an_unknown_key_is_an_error_with_file_line_and_key() {
    Session::new()
        .file("home/.config/haul/config.toml", "[defaults]\n\nfsnyc = true\n")
        .haul("ls")
        .status(2)
        .stderr_has("haul: [ROOT]/home/.config/haul/config.toml:3: unknown field `fsnyc`");
}

#[test]
fn a_wrong_value_is_an_error_with_its_key() {
    Session::new()
        .file("c.toml", "[defaults]\nretries = \"many\"\n")
        .haul("ls --config c.toml")
        .status(2)
        .stderr("haul: c.toml:2: retries: 'many' is not a number between 0 and 1000\n");
}

#[test]
fn a_named_file_must_exist_and_the_usual_one_need_not() {
    let session = Session::new();
    session
        .haul("ls --config none.toml")
        .status(2)
        .stderr("haul: none.toml: cannot read (not found)\n");
    session.haul("ls").status(0);
}

#[test]
fn an_empty_haul_config_means_none() {
    let session = Session::new().file("home/.config/haul/config.toml", "broken");
    let output = session.command("ls home").env("HAUL_CONFIG", "").output().unwrap();
    assert!(output.status.success());
}

#[test]
fn a_remote_is_a_name_for_a_location() {
    Session::new()
        .file("c.toml", "[remote.disk]\nurl = \"deep/down\"\n")
        .file("deep/down/x/a", "a")
        .haul("ls --config c.toml disk:x")
        .status(0)
        .stdout("a\n");
}

#[test]
fn xdg_config_home_goes_before_home() {
    let session = Session::new().file("home/.config/haul/config.toml", "broken");
    let xdg = session.path("xdg");
    let output = session.command("ls home").env("XDG_CONFIG_HOME", xdg).output().unwrap();
    assert!(output.status.success());
}
