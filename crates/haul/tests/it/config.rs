//! The configuration file, and `haul config`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Stdio;

use serde_json::Value;

use crate::faults::{as_nobody, is_root};
use crate::pty::Terminal;
use crate::session::Session;
use crate::sftp::sshd::Sshd;

const DEFAULT_PATH: &str = "home/.config/haul/config.toml";

fn mode(session: &Session, path: &str) -> u32 {
    fs::metadata(session.path(path)).unwrap().permissions().mode() & 0o7777
}

/// A session with a remote `nas` on a server, and an SSH configuration with which haul can log in.
fn with_sshd() -> (Session, Sshd) {
    let sshd = Sshd::start();
    let session = Session::new().directory("far");
    let mut ssh = format!(
        "Host nas.example\n HostName {}\n Port {}\n IdentityFile {}\n HostKeyAlias {}\n",
        sshd.host(),
        sshd.port(),
        sshd.user_key().display(),
        sshd.known_name()
    );
    for option in sshd.isolated() {
        ssh += &format!(" {}\n", option.replacen('=', " ", 1));
    }
    session.write("home/.ssh/config", ssh);
    session.write("ssh", "IdentityFile none\nIdentityAgent none\n");
    let url = format!("sftp://nas.example{}", session.path("far").display());
    let config = format!("# mine\n[remote.nas]  # at home\nurl = \"{url}\"\n");
    session.write(DEFAULT_PATH, config);
    (session, sshd)
}

#[test]
fn an_unknown_key_is_an_error_with_file_line_section_and_key() {
    Session::new().file(DEFAULT_PATH, "[defaults]\n\nfsnyc = true\n").haul("ls").status(2).stderr(
        &format!(
            "haul: [ROOT]/{DEFAULT_PATH}:3: [defaults] fsnyc: unknown key\nhint: did you mean 'fsync'?\n"
        ),
    );
}

#[test]
fn a_wrong_value_is_an_error_with_its_key() {
    let session = Session::new().file("c.toml", "[defaults]\nretries = \"many\"\n");
    session
        .haul("ls --config c.toml")
        .status(2)
        .stderr("haul: c.toml:2: [defaults] retries: 'many' is not a number between 0 and 1000\n");
    session.write("c.toml", "[remote.nas]\nurl = \"sftp://ada:geheim@nas/\"\nuser = \"x/y\"\n");
    let ran = session.haul("ls --config c.toml").status(2);
    assert!(!ran.err().contains("geheim"), "{}", ran.err());
    ran.stderr_has("haul: c.toml:2: [remote.nas] url: 'sftp://ada:***@nas/'")
        .stderr_has("\nhint: haul config check lists all 2 errors\n");
}

#[test]
fn a_configuration_file_that_is_named_must_exist_and_the_usual_one_need_not() {
    let session = Session::new();
    session
        .haul("ls --config none.toml")
        .status(2)
        .stderr("haul: none.toml: cannot read (not found)\n");
    session.haul("ls").status(0);
}

#[test]
fn an_empty_haul_config_means_none() {
    let session = Session::new().file(DEFAULT_PATH, "broken");
    let output = session.command("ls home").env("HAUL_CONFIG", "").output().unwrap();
    assert!(output.status.success());
    let ran = session.haul_where("config path", &[("HAUL_CONFIG", "")]).status(2);
    ran.stderr_has("there is no configuration file");
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
fn xdg_config_home_takes_precedence_over_home() {
    let session = Session::new().file(DEFAULT_PATH, "broken");
    let xdg = session.path("xdg");
    let output = session.command("ls home").env("XDG_CONFIG_HOME", xdg).output().unwrap();
    assert!(output.status.success());
}

#[test]
fn the_configuration_path_is_that_of_the_option_the_variable_or_the_home() {
    let session = Session::new();
    session.haul("config path").status(0).stdout(&format!("[ROOT]/{DEFAULT_PATH}\n"));
    session.haul("config path --config a.toml").status(0).stdout("a.toml\n");
    session.haul_where("config path", &[("HAUL_CONFIG", "b.toml")]).status(0).stdout("b.toml\n");
    let object = session.haul("config path --json").status(0).objects().remove(0);
    assert_eq!((&object["event"], &object["exists"]), (&"path".into(), &Value::Bool(false)));
}

const ALL: &str = "[defaults]\nlanes = 4\nprofile = \"night\"\n\n[remote.nas]\nurl = \
                   \"sftp://nas.example/volume1\"\nuser = \"ada\"\npassword-command = \"echo geheim\"\n\n\
                   [profile.night]\nprofile = \"safe\"\nretries = 3\nexclude = [\"*.tmp\"]\n\n\
                   [remote.cloud]\nurl = \"davs://cloud/x\"\n";

#[test]
fn list_prints_remotes_defaults_and_profiles() {
    let session = Session::new().file(DEFAULT_PATH, ALL);
    session.haul("config list").status(0).stderr("").stdout(
        "nas:    sftp://ada@nas.example/volume1\n\
         cloud:  davs://cloud/x\n\
         \n\
         [defaults]\n\
         lanes = 4\n\
         profile = night\n\
         \n\
         [profile.night]\n\
         profile = safe\n\
         retries = 3\n\
         exclude = [\"*.tmp\"]\n",
    );
    let objects = session.haul("config list --json").status(0).objects();
    assert_eq!(objects.len(), 2 + 5);
    assert_eq!(objects[0]["event"], "remote");
    assert_eq!((&objects[0]["name"], &objects[0]["line"]), (&"nas".into(), &5.into()));
    assert_eq!(objects[0]["location"], "sftp://ada@nas.example/volume1");
    assert_eq!(
        (&objects[2]["event"], &objects[2]["section"]),
        (&"setting".into(), &"defaults".into())
    );
    assert_eq!((&objects[2]["value"], &objects[2]["line"]), (&"4".into(), &2.into()));
    let session = Session::new();
    session.haul("config list").status(0).stdout("").stderr_has("no configuration file");
}

/// The value in a line of `haul config show`, and its source.
fn shown(out: &str, name: &str) -> (String, String) {
    let line = out.lines().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {out}"));
    let (value, source) = line[name.len()..].trim().split_once("  ").unwrap();
    (value.to_owned(), source.trim().to_owned())
}

#[test]
fn show_prints_the_source_of_each_option() {
    let session = Session::new().file(DEFAULT_PATH, ALL);
    let variables = [
        ("HAUL_PASSWORD", "geheim"),
        ("http_proxy", "http://me:geheim@proxy:3128"),
        // Formerly, it was not printed. A misspelt value turns it off.
        ("HAUL_LAN", "of"),
        ("HAUL_PORT_MAPPING", ""),
    ];
    let ran = session.haul_where("config show", &variables).status(0).stderr("");
    let out = ran.out();
    assert!(!out.contains("geheim"), "{out}");
    let at = |line| format!("[ROOT]/{DEFAULT_PATH}:{line}");
    for (name, value, source) in [
        ("configuration", format!("[ROOT]/{DEFAULT_PATH}"), "built-in default".to_owned()),
        ("profile", "night".into(), at(3)),
        ("lanes", "4".into(), at(2)),
        ("retries", "3".into(), at(12)),
        ("verify", "yes".into(), "built-in profile safe".into()),
        ("overwrite", "different".into(), "built-in default".into()),
        ("exclude", "[\"*.tmp\"]".into(), at(13)),
        ("password", "(not shown)".into(), "environment HAUL_PASSWORD".into()),
        ("http-proxy", "http://***@proxy:3128".into(), "environment http_proxy".into()),
        ("lan", "no".into(), "environment HAUL_LAN".into()),
    ] {
        assert_eq!(shown(&out, name), (value, source), "{name}\n{out}");
    }
    assert!(!out.contains("port-mapping"), "an empty variable is not ignored: {out}");
}

/// Formerly, it omitted `HTTP_PROXY` and `ftp_proxy`, and listed an upper-case variable that an empty lower-case one
/// overrides.
#[test]
fn show_prints_the_proxies_that_haul_uses() {
    let session = Session::new();
    let proxies = [
        ("HTTP_PROXY", "http://one:1"),
        ("ftp_proxy", "socks5://me:geheim@two:2"),
        ("https_proxy", ""),
        ("HTTPS_PROXY", "http://three:3"),
    ];
    let out = session.haul_where("config show", &proxies).status(0).stderr("").out();
    let source = |name: &str| format!("environment {name}");
    assert_eq!(shown(&out, "http-proxy"), ("http://one:1".to_owned(), source("HTTP_PROXY")));
    assert_eq!(shown(&out, "ftp-proxy"), ("socks5://***@two:2".to_owned(), source("ftp_proxy")));
    assert!(!out.contains("three") && !out.contains("geheim"), "{out}");
    let cgi = [proxies[0], ("REQUEST_METHOD", "GET")];
    let out = session.haul_where("config show", &cgi).status(0).stderr("").out();
    assert!(!out.contains("one:1"), "{out}");
}

#[test]
fn show_prints_settings_of_a_remote_from_the_file_ssh_config_and_the_environment() {
    let session = Session::new().file(DEFAULT_PATH, ALL);
    let ssh = "Host *.example\n HostName 10.0.0.5\n Port 2222\n IdentityFile /keys/nas\n ProxyJump gate\n";
    session.write("home/.ssh/config", ssh);
    session.tool("chmod 600 home/.ssh/config");
    let out = session.haul("config show nas").status(0).stderr("").out();
    assert!(!out.contains("geheim"), "{out}");
    let at = |line| format!("[ROOT]/{DEFAULT_PATH}:{line}");
    let ssh = |line| format!("ssh_config [ROOT]/home/.ssh/config:{line}");
    for (name, value, source) in [
        ("location", "sftp://ada@nas.example/volume1", at(6)),
        ("host", "nas.example", at(6)),
        ("host-name", "10.0.0.5", ssh(2)),
        ("port", "2222", ssh(3)),
        ("user", "ada", at(7)),
        ("jump", "gate", ssh(5)),
        ("identity-file", "/keys/nas", ssh(4)),
        ("host-key-checking", "ask", "built-in default".to_owned()),
        ("path", "/volume1", at(6)),
        ("password", "(not shown)", at(8)),
    ] {
        assert_eq!(shown(&out, name), (value.to_owned(), source), "{name}\n{out}");
    }
    session.write("proxied", "ProxyCommand nc --proxy-auth me:geheim %h %p\n");
    let out = session.haul("config show -F proxied nas").status(0).out();
    assert_eq!(shown(&out, "proxy-command"), ("(not shown)".into(), "ssh_config proxied:1".into()));
    assert!(!out.contains("geheim"), "{out}");
    let out = session.haul("config show -P 23 -F none nas").status(0).out();
    assert_eq!(shown(&out, "port"), ("23".into(), "command line (-P)".into()), "{out}");
    let variables = [("HAUL_PASSWORD_NAS", "geheim"), ("HAUL_TOKEN_CLOUD", "geheim")];
    let out = session.haul_where("config show nas", &variables).status(0).out();
    assert_eq!(shown(&out, "password").1, "environment HAUL_PASSWORD_NAS");
    let ran = session.haul_where("config show --json cloud", &variables).status(0);
    assert!(!ran.out().contains("geheim"), "{}", ran.out());
    let token = ran.objects().into_iter().find(|object| object["name"] == "token").unwrap();
    assert_eq!((&token["value"], &token["source"]), (&Value::Null, &"environment".into()));
    assert_eq!(
        (&token["of"], &token["section"]),
        (&"HAUL_TOKEN_CLOUD".into(), &"remote.cloud".into())
    );
    let out = session.haul("config show cloud").status(0).out();
    assert_eq!(shown(&out, "port"), ("443".into(), "built-in default".into()));
    assert_eq!(shown(&out, "user"), ("none".into(), "built-in default".into()));
    session
        .haul("config show nsa")
        .status(2)
        .stderr("haul: the configuration has no remote 'nsa'\nhint: did you mean 'nas'?\n");
}

#[test]
fn check_prints_every_fault_with_its_hint() {
    let text =
        "[defaults]\nfsnyc = true\nlanes = 0\n[remote.nas]\nurl = \"sftp://nas/\"\nprot = 22\n";
    let session = Session::new().file(DEFAULT_PATH, text);
    session.haul("config check").status(1).stdout("").stderr(&format!(
        "haul: [ROOT]/{DEFAULT_PATH}:2: [defaults] fsnyc: unknown key\n\
         hint: did you mean 'fsync'?\n\
         haul: [ROOT]/{DEFAULT_PATH}:3: [defaults] lanes: '0' is not a number between 1 and 256, or write 'auto'\n\
         haul: [ROOT]/{DEFAULT_PATH}:6: [remote.nas] prot: unknown key\n\
         hint: did you mean 'port'?\n"
    ));
    let objects = session.haul("config check --json").status(1).stderr("").objects();
    assert_eq!(objects.len(), 4);
    let last = &objects[2];
    assert_eq!((&last["event"], &last["line"]), (&"fault".into(), &6.into()));
    assert_eq!((&last["remote"], &last["key"]), (&"nas".into(), &"prot".into()));
    assert_eq!(
        (&last["message"], &last["hint"]),
        (&"unknown key".into(), &"did you mean 'port'?".into())
    );
    assert_eq!((&objects[3]["event"], &objects[3]["faults"]), (&"summary".into(), &3.into()));
    session.write(DEFAULT_PATH, ALL);
    let expected = format!("[ROOT]/{DEFAULT_PATH}: no errors (2 remotes, 1 profile)\n");
    session.haul("config check").status(0).stdout("").stderr(&expected);
    session.haul("config check --config none.toml").status(1).stderr_has("cannot read (not found)");
    fs::remove_file(session.path(DEFAULT_PATH)).unwrap();
    session.haul("config check").status(0).stderr_has("not found; the file is optional");
}

#[test]
fn check_connects_to_each_remote() {
    let (session, mut sshd) = with_sshd();
    let more =
        "[remote.disk]\nurl = \"/nowhere/at/all\"\n[remote.gone]\nurl = \"ftp://127.0.0.1:1/\"\n";
    session.write(DEFAULT_PATH, session.read(DEFAULT_PATH) + more);
    let ran = session.haul("config check --connect").status(1);
    assert!(ran.out().starts_with("nas: connected in "), "{}{}", ran.out(), ran.err());
    let ran = ran.stdout_has("\ndisk: the path does not exist yet (/nowhere/at/all)\n");
    ran.stderr_has("haul: gone: 127.0.0.1:1: cannot connect (");
    let objects = session.haul("config check --connect --json").status(1).objects();
    let of = |name: &str| objects.iter().find(|object| object["remote"] == name).unwrap();
    assert_eq!(
        (&of("nas")["event"], &of("nas")["connected"]),
        (&"connection".into(), &true.into())
    );
    assert_eq!((&of("nas")["exists"], &of("disk")["exists"]), (&true.into(), &false.into()));
    assert_eq!(of("gone")["connected"], false);
    assert_eq!(of("gone")["error"]["kind"], "unreachable");
    let summary = objects.last().unwrap();
    assert_eq!((&summary["remotes"], &summary["unreachable"]), (&3.into(), &1.into()));
    sshd.stop();
    session.haul("config check --connect").status(1).stderr_has("haul: nas: ");
}

#[test]
fn a_remote_is_added_at_the_end_and_removed_again() {
    let (session, _sshd) = with_sshd();
    let before = session.read(DEFAULT_PATH) + "\n# the last line\n";
    session.write(DEFAULT_PATH, &before);
    fs::set_permissions(session.path(DEFAULT_PATH), fs::Permissions::from_mode(0o640)).unwrap();
    session.write("far/photos/a", "a");
    let url = format!("sftp://nas.example{}/photos", session.path("far").display());
    let ran = session.haul(&format!("config add photos {url} --password-command true")).status(0);
    assert!(ran.out().starts_with("photos: connected in "), "{}", ran.out());
    ran.stderr_has(&format!(
        "added 'photos' to [ROOT]/{DEFAULT_PATH}: {}",
        url.replace(&session.path("").display().to_string(), "[ROOT]/")
            .replace("//photos", "/photos")
    ));
    let added = format!("\n[remote.photos]\nurl = \"{url}\"\npassword-command = \"true\"\n");
    assert_eq!(session.read(DEFAULT_PATH), before.clone() + &added);
    assert_eq!(mode(&session, DEFAULT_PATH), 0o640);
    session.haul("ls photos:").status(0).stdout("a\n");
    session.haul("config add photos /x").status(2).stderr_has("there is a remote 'photos' already");
    session.haul("config remove photo").status(2).stderr_has("did you mean 'photos'?");
    session.haul("config remove photos").status(0).stdout("");
    assert_eq!(session.read(DEFAULT_PATH), before);
    assert_eq!(mode(&session, DEFAULT_PATH), 0o640);
}

#[test]
fn an_unreachable_remote_is_not_added() {
    let session = Session::new();
    let ran = session.haul("config add gone ftp://127.0.0.1:1/").status(1);
    ran.stderr_has("haul: gone: 127.0.0.1:1: cannot connect (")
        .stderr_has("hint: --no-test adds it without connecting\n")
        .stderr_has("config.toml is unchanged");
    assert!(!session.has(DEFAULT_PATH));
    session.haul("config add --no-test gone ftp://127.0.0.1:1/ --user me").status(0);
    assert_eq!(
        session.read(DEFAULT_PATH),
        "[remote.gone]\nurl = \"ftp://127.0.0.1:1/\"\nuser = \"me\"\n"
    );
    assert_eq!((mode(&session, DEFAULT_PATH), mode(&session, "home/.config/haul")), (0o600, 0o700));
    // A file with faults is not changed.
    session.write(DEFAULT_PATH, "[defaults]\nfsnyc = true\n");
    session.haul("config add --no-test x /x").status(2).stderr_has("fsnyc: unknown key");
    session.haul("config remove x").status(2).stderr_has("fsnyc: unknown key");
    assert_eq!(session.read(DEFAULT_PATH), "[defaults]\nfsnyc = true\n");
}

/// Formerly, the last of several runs could replace what the others had written.
#[test]
fn remotes_that_are_added_at_the_same_time_are_all_written() {
    let session = Session::new();
    let add = |n: usize| {
        let mut command = session.command(&format!("config add --no-test n{n} /d{n}"));
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    for round in [0..8, 8..16] {
        let running: Vec<_> = round.map(add).collect();
        for mut run in running {
            assert!(run.wait().unwrap().success());
        }
    }
    let out = session.haul("config list").status(0).out();
    assert_eq!(out.lines().count(), 16, "{out}");
    let directory = session.path("home/.config/haul");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
}

#[test]
fn without_a_terminal_missing_options_are_named() {
    let session = Session::new();
    for (line, part) in [
        ("x", "--protocol and --host are missing, and there is no terminal to prompt on"),
        ("x --host nas", "--protocol is missing"),
        ("x --protocol davs", "--host is missing"),
        ("x --protocol local", "--path is missing"),
        ("a/b /x", "a remote is used as NAME:PATH"),
        ("x /x --user ada", "a local path has no --user"),
        (
            "x sftp://ada@h/ --user eve",
            "the location has a user or port already; omit --user and \
                                        --port",
        ),
        ("x sftp://ada:geheim@h/", "a password does not belong in a location"),
        ("x --protocol sftp --host h:22", "not just a host name"),
    ] {
        let ran = session.haul(&format!("config add --no-test {line}")).status(2).stdout("");
        assert!(ran.err().contains(part) && !ran.err().contains("geheim"), "{line}: {}", ran.err());
    }
    assert!(!session.has(DEFAULT_PATH));
    session.haul("config add --no-test x --protocol sftp --host ::1 --path a").status(0);
    session.haul("config add --no-test y here/there").status(0);
    session.haul("config add --no-test z ada@nas:photos --port 2222").status(0);
    session
        .haul("config list")
        .status(0)
        .stdout("x:  sftp://[::1]/~/a\ny:  [ROOT]/here/there\nz:  sftp://ada@nas:2222/~/photos\n");
}

#[test]
fn on_a_terminal_missing_options_are_prompted_for() {
    let (session, sshd) = with_sshd();
    session.write("far/x", "x");
    let mut terminal = Terminal::start(&session, "config add photos");
    terminal
        .type_line("Protocol (sftp, davs, dav, https, http, ftps, ftp, local) [sftp]: ", "gopher");
    terminal.until("Please type one of sftp");
    terminal.type_line("[sftp]: ", "");
    terminal.type_line("Host: ", "nas.example:22");
    terminal.type_line("Host: ", "nas.example");
    terminal.type_line("Path [home directory]: ", &session.path("far").display().to_string());
    terminal.type_line("Port [22]: ", "many");
    terminal.type_line("Port [22]: ", "");
    terminal.type_line(&format!("User [{}]: ", sshd.user()), "");
    terminal.type_line("Command that prints the password [none: keys, or a prompt]: ", "");
    let (status, shown) = terminal.end();
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains("photos: connected in"), "{shown}");
    let added = format!(
        "\n[remote.photos]\nurl = \"sftp://nas.example{}\"\n",
        session.path("far").display()
    );
    assert!(session.read(DEFAULT_PATH).ends_with(&added), "{}", session.read(DEFAULT_PATH));
    session.haul("ls photos:").status(0).stdout("x\n");
    // If it cannot be reached, the user decides.
    for (reply, is_added) in [("", false), ("yes", true)] {
        let line = "config add gone ftp://127.0.0.1:1/ --user me --password-command true";
        let mut terminal = Terminal::start(&session, line);
        terminal.type_line("Add it anyway (yes/no) [no]: ", reply);
        let (status, shown) = terminal.end();
        assert_eq!(status, i32::from(!is_added), "{shown}");
        assert_eq!(session.read(DEFAULT_PATH).contains("remote.gone"), is_added);
    }
}

/// Formerly, it was taken for the path of an SSH host.
#[test]
fn on_a_terminal_too_a_local_path_may_contain_a_colon() {
    let session = Session::new().directory("a:b");
    let mut terminal = Terminal::start(&session, "config add x --protocol local --path a:b");
    terminal.until("added 'x' to ");
    let (status, shown) = terminal.end();
    assert_eq!(status, 0, "{shown}");
    session.haul("config list").status(0).stdout("x:  [ROOT]/a:b\n");
}

/// An editor that changes the file with sed.
fn editor(script: &str) -> String {
    format!("sed -i -e {script}")
}

#[test]
fn an_edit_is_written_as_a_whole_once_it_has_no_faults() {
    let session = Session::new().file(DEFAULT_PATH, "# mine\n[defaults]\nlanes = 4\n");
    fs::set_permissions(session.path(DEFAULT_PATH), fs::Permissions::from_mode(0o600)).unwrap();
    let edit = |script: &str| session.haul_where("config edit", &[("EDITOR", &editor(script))]);
    edit("s/4/5/").status(0).stdout("").stderr(&format!("[ROOT]/{DEFAULT_PATH}: written\n"));
    assert_eq!(session.read(DEFAULT_PATH), "# mine\n[defaults]\nlanes = 5\n");
    assert_eq!(mode(&session, DEFAULT_PATH), 0o600);
    edit("s/4/5/").status(0).stderr(&format!("[ROOT]/{DEFAULT_PATH}: unchanged\n"));
    // VISUAL takes precedence.
    let variables = [("VISUAL", editor("s/5/6/")), ("EDITOR", "false".to_owned())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    session.haul_where("config edit", &variables).status(0);
    assert_eq!(session.read(DEFAULT_PATH), "# mine\n[defaults]\nlanes = 6\n");
    // An edited copy with a fault is saved, and the configuration is unchanged.
    let ran = edit("s/lanes/lnes/").status(1);
    assert!(
        ran.err()
            .starts_with(&format!("haul: [ROOT]/{DEFAULT_PATH}:3: [defaults] lnes: unknown key\n"))
    );
    let (_, copy) = ran
        .err()
        .trim_end()
        .rsplit_once("kept as [ROOT]/")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert_eq!(session.read(&copy), "# mine\n[defaults]\nlnes = 6\n");
    assert_eq!(mode(&session, &copy), 0o600);
    assert_eq!(session.read(DEFAULT_PATH), "# mine\n[defaults]\nlanes = 6\n");
    let ran = session.haul_where("config edit", &[("EDITOR", "false")]).status(1);
    ran.stderr_has("haul: false: cannot edit the configuration (")
        .stderr_has("hint: VISUAL or EDITOR");
    // Formerly, the copy was said to be kept.
    let gone = session.haul_where("config edit", &[("EDITOR", "rm \"$1\"; false")]).status(1);
    assert!(!gone.err().contains("kept as"), "{}", gone.err());
    // A new file begins with a template; an unchanged template is not written.
    fs::remove_file(session.path(DEFAULT_PATH)).unwrap();
    session.haul_where("config edit", &[("EDITOR", "true")]).status(0);
    assert!(!session.has(DEFAULT_PATH));
    edit("'s/^# \\[defaults\\].*/[defaults]/;s/^# fsync/fsync/'").status(0);
    assert!(
        session.read(DEFAULT_PATH).contains("\n[defaults]\nfsync = true\n"),
        "{}",
        session.read(DEFAULT_PATH)
    );
    assert_eq!(mode(&session, DEFAULT_PATH), 0o600);
}

/// Formerly, haul reported that the configuration was unchanged.
#[test]
fn an_edit_is_written_even_if_its_directory_cannot_be_synced() {
    let session = Session::new().file("conf/haul.toml", "[defaults]\nlanes = 4\n");
    let mut command = as_nobody(&session, "--config conf/haul.toml config edit");
    if is_root() {
        for path in ["conf", "conf/haul.toml"] {
            chown(session.path(path), Some(65534), Some(65534)).unwrap();
        }
    }
    // A directory that cannot be opened for reading.
    fs::set_permissions(session.path("conf"), fs::Permissions::from_mode(0o300)).unwrap();
    let output = command.env("EDITOR", editor("s/4/5/")).output().unwrap();
    fs::set_permissions(session.path("conf"), fs::Permissions::from_mode(0o700)).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("haul: conf/haul.toml: cannot sync ("), "{error}");
    assert!(error.contains("it is written") && !error.contains("unchanged"), "{error}");
    assert_eq!(session.read("conf/haul.toml"), "[defaults]\nlanes = 5\n");
}

/// Formerly, haul ignored Ctrl-C after the editor had run.
#[test]
fn ctrl_c_ends_the_prompt_whether_to_edit_again() {
    let session = Session::new().file(DEFAULT_PATH, "[defaults]\nlanes = 4\n").file("tmp/x", "");
    session.write("editor", "#!/bin/sh\necho lnes=7 >> \"$1\"\n");
    session.tool("chmod 755 editor");
    let [editor, tmp] = ["editor", "tmp"].map(|name| session.path(name).display().to_string());
    let variables = [("EDITOR", editor.as_str()), ("TMPDIR", tmp.as_str())];
    let mut terminal = Terminal::start_where(&session, "config edit", &variables);
    terminal.until("lnes: unknown key");
    terminal.press("Edit it again (yes/no) [yes]: ", "\x03");
    let (status, shown) = terminal.end();
    assert_eq!(status, 130, "{shown}");
    assert!(shown.contains("the edited copy is kept as"), "{shown}");
    assert_eq!(session.read(DEFAULT_PATH), "[defaults]\nlanes = 4\n");
}

#[test]
fn on_a_terminal_a_faulty_edit_is_edited_again() {
    let session = Session::new().file(DEFAULT_PATH, "[defaults]\nlanes = 4\n");
    // Its second run corrects the key that the first one broke.
    session.write("editor", "#!/bin/sh\ngrep -q lnes \"$1\" && s=s/lnes/lanes/ || s=s/lanes.*/lnes=7/\nsed -i $s \"$1\"\n");
    session.tool("chmod 755 editor");
    let editor = session.path("editor").display().to_string();
    let variables = [("EDITOR", editor.as_str()), ("TMPDIR", "/tmp")];
    let mut terminal = Terminal::start_where(&session, "config edit", &variables);
    terminal.until("lnes: unknown key");
    terminal.type_line("Edit it again (yes/no) [yes]: ", "");
    let (status, shown) = terminal.end();
    assert_eq!(status, 0, "{shown}");
    assert_eq!(session.read(DEFAULT_PATH), "[defaults]\nlanes=7\n");
}
