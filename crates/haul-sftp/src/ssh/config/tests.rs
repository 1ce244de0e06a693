//! Resolves configurations in memory; `openssh` compares the results of files with those of `ssh -G`. The integration
//! tests (`tests/ssh/configuration.rs`) compare user, host name and port, through the public interface.

mod openssh;

use std::collections::BTreeMap;
use std::io;

use haul_storage::ErrorKind;

use super::*;
use crate::ssh::choice::HOST_KEYS;

/// Files, commands and names in memory.
#[derive(Default)]
struct Fake {
    files: BTreeMap<PathBuf, String>,
    /// Commands that succeed.
    succeeding: Vec<String>,
    /// The files that were read, and whether they were guarded.
    read: std::cell::RefCell<Vec<(PathBuf, bool)>>,
    /// Hosts that have an address.
    hosts: Vec<String>,
}

impl World for Fake {
    fn read(&self, path: &Path, guarded: bool) -> io::Result<String> {
        self.read.borrow_mut().push((path.to_owned(), guarded));
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let matches =
            |path: &&PathBuf| crate::ssh::pattern::matches(pattern, &path.to_string_lossy());
        self.files.keys().filter(matches).cloned().collect()
    }

    fn succeeds(&self, command: &str) -> bool {
        self.succeeding.iter().any(|succeeding| succeeding == command)
    }

    fn resolves(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host == name)
    }
}

fn query(host: &str) -> Query {
    Query {
        host: host.to_owned(),
        local_user: "me".to_owned(),
        home: PathBuf::from("/home/me"),
        local_host: "here".to_owned(),
    }
}

fn world(text: &str) -> Fake {
    Fake {
        files: [(PathBuf::from("/home/me/.ssh/config"), text.to_owned())].into(),
        ..Fake::default()
    }
}

fn resolved(text: &str, host: &str) -> HostConfig {
    resolve_in(&world(text), &query(host), None, None, &SshOptions::default()).unwrap()
}

#[test]
fn without_files_the_defaults_apply() {
    let config =
        resolve_in(&Fake::default(), &query("h"), None, None, &SshOptions::default()).unwrap();
    assert_eq!((config.host_name.as_str(), config.port, config.user.as_str()), ("h", 22, "me"));
    assert_eq!(config.alive_interval, Some(Duration::from_secs(15)));
    assert_eq!(config.alive_count, 4);
    assert_eq!(config.route, Route::Direct);
    assert!(!config.identities_named);
    let names = ["id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"];
    let defaults = names.map(|name| PathBuf::from("/home/me/.ssh").join(name));
    assert_eq!(config.identity_files, defaults);
    assert_eq!(config.user_known_hosts[0], PathBuf::from("/home/me/.ssh/known_hosts"));
}

#[test]
fn host_blocks_apply_to_matching_hosts() {
    let text = "User first\nHost *.org !bad.org\n HostName %h.example\nHost *\n Port 7\n User late";
    assert_eq!(resolved(text, "a.org").host_name, "a.org.example");
    let bad = resolved(text, "bad.org");
    assert_eq!((bad.host_name.as_str(), bad.port, bad.user.as_str()), ("bad.org", 7, "first"));
}

#[test]
fn the_command_line_wins_over_the_files() {
    let text = "Port 1\nUser file\nIdentityFile ~/file\nProxyJump filejump";
    let options = SshOptions {
        identities: vec!["/key".into()],
        jump: Some("none".to_owned()),
        options: vec!["Port=2".to_owned(), "user option".to_owned()],
        ..SshOptions::default()
    };
    let config = resolve_in(&world(text), &query("h"), Some("said"), None, &options).unwrap();
    assert_eq!((config.user.as_str(), config.port), ("said", 2));
    assert_eq!(config.identity_files, [PathBuf::from("/key"), PathBuf::from("/home/me/file")]);
    assert_eq!(config.route, Route::Direct);
}

#[test]
fn match_supports_host_originalhost_user_localuser_and_all() {
    let text = "Host alias\n HostName real\n\
                Match host real originalhost alias user me localuser m?\n Port 5\n\
                Match !user me\n Port 6\n\
                Match all\n BatchMode yes";
    let config = resolved(text, "alias");
    assert_eq!((config.port, config.batch_mode), (5, true));
    assert_eq!(resolved(text, "other").port, 22);
}

#[test]
fn match_exec_applies_if_its_command_succeeds_and_the_other_criteria_match() {
    let text = "Match user nobody exec \"rm %h\"\n Port 1\nMatch exec \"test %h\"\n Port 2";
    let mut world = world(text);
    world.succeeding = vec!["test h".to_owned(), "rm h".to_owned()];
    let config = resolve_in(&world, &query("h"), None, None, &SshOptions::default()).unwrap();
    assert_eq!(config.port, 2);
    assert_eq!(resolved(text, "h").port, 22);
}

#[test]
fn match_final_applies_in_a_second_pass_with_the_resolved_host_name() {
    let text =
        "Match final host real\n Port 9\nHost alias\n HostName real\nMatch canonical all\n User u";
    let config = resolved(text, "alias");
    assert_eq!((config.port, config.user.as_str()), (9, "u"));
    assert_eq!(resolved("Match canonical\n Port 9", "h").port, 22);
}

/// OpenSSH also refuses these files if other users can write to them.
#[test]
fn the_users_file_and_all_included_files_are_guarded() {
    let mut world = world("Include part");
    for (path, text) in [
        ("/home/me/.ssh/part", "Include below"),
        ("/home/me/.ssh/below", ""),
        ("/etc/ssh/ssh_config", "Include sys"),
        ("/etc/ssh/sys", ""),
    ] {
        world.files.insert(path.into(), text.to_owned());
    }
    resolve_in(&world, &query("h"), None, None, &SshOptions::default()).unwrap();
    let read: Vec<_> = world.read.take();
    let expected = [
        ("/home/me/.ssh/config", true),
        ("/home/me/.ssh/part", true),
        ("/home/me/.ssh/below", true),
        ("/etc/ssh/ssh_config", false),
        ("/etc/ssh/sys", true),
    ];
    assert_eq!(read, expected.map(|(path, guarded)| (PathBuf::from(path), guarded)));
    let named = SshOptions {
        config: ConfigFile::Path("/home/me/.ssh/part".into()),
        ..SshOptions::default()
    };
    resolve_in(&world, &query("h"), None, None, &named).unwrap();
    let read: Vec<_> = world.read.take();
    assert_eq!(
        read,
        expected[1..3]
            .iter()
            .map(|(path, _)| (PathBuf::from(path), *path == "/home/me/.ssh/below"))
            .collect::<Vec<_>>()
    );
}

#[test]
fn an_unsupported_option_is_an_error_only_for_hosts_it_applies_to() {
    for line in [
        "RevokedHostKeys /etc/revoked",
        "BindInterface eth0",
        "ProxyJump a;b",
        "CanonicalizePermittedCNAMEs *.a:*.b\nCanonicalizeHostname yes",
        "ProxyUseFdpass yes\nProxyCommand nc %h %p",
    ] {
        let config = resolved(&format!("Host other\n{line}\nMatch host other\n{line}"), "h");
        assert_eq!(config.route, Route::Direct);
        let error = resolve_in(&world(line), &query("h"), None, None, &SshOptions::default());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput, "{line}");
    }
    // An unsupported criterion does not matter if another one does not match.
    assert_eq!(resolved("Match localnetwork 10.0.0.0/8 host other\n Port 5", "h").port, 22);
    let text = "Match localnetwork 10.0.0.0/8 host h\n Port 5";
    let error = resolve_in(&world(text), &query("h"), None, None, &SshOptions::default());
    assert!(error.unwrap_err().to_string().contains("localnetwork"));
    for line in ["VerifyHostKeyDNS yes", "VerifyHostKeyDNS ask", "ProxyUseFdpass yes"] {
        assert_eq!(resolved(line, "h").strict_host_keys, StrictHostKeys::Ask, "{line}");
    }
}

#[test]
fn a_canonicalized_host_name_is_in_lower_case() {
    let text = "CanonicalizeHostname yes\nCanonicalDomains A.Org\nHost h.a.org\n Port 5";
    let mut fake = world(text);
    fake.hosts = vec!["H.A.Org.".to_owned()];
    let config = resolve_in(&fake, &query("H"), None, None, &SshOptions::default()).unwrap();
    assert_eq!((config.host_name.as_str(), config.port), ("h.a.org", 5));
}

#[test]
fn a_canonicalized_host_name_is_matched_in_a_second_pass() {
    let text = "CanonicalizeHostname yes\nCanonicalDomains a.org b.org.\n\
                Host *.b.org\n Port 5\nMatch canonical\n User canonical\nHost via\n ProxyJump x";
    let mut fake = world(text);
    fake.hosts = vec!["h.b.org.".to_owned(), "via.a.org.".to_owned()];
    let get =
        |host: &str| resolve_in(&fake, &query(host), None, None, &SshOptions::default()).unwrap();
    let found = get("h");
    assert_eq!(
        (found.host_name.as_str(), found.port, found.user.as_str()),
        ("h.b.org", 5, "canonical")
    );
    assert_eq!(found.alias, "h");
    for unchanged in ["other", "a.b.c", "10.0.0.1", "via"] {
        assert_eq!(get(unchanged).host_name, unchanged);
    }
    let strict = format!("{text}\nHost *\nCanonicalizeFallbackLocal no");
    let error = resolve_in(&world(&strict), &query("h"), None, None, &SshOptions::default());
    assert!(error.unwrap_err().to_string().contains("CanonicalDomains"));
}

#[test]
fn invalid_utf_8_is_an_error_only_in_supported_options_that_apply() {
    let text = "# Schl\u{fffd}ssel\nHost other\n User M\u{fffd}ller\nHost *\n SomethingElse \u{fffd}\n Port 5";
    assert_eq!(resolved(text, "h").port, 5);
    let error = resolve_in(&world(text), &query("other"), None, None, &SshOptions::default());
    assert_eq!(error.unwrap_err().location(), "/home/me/.ssh/config:3");
}

#[test]
fn an_include_is_read_in_place_and_applies_only_within_its_block() {
    let mut world = world("Host a\n Include conf.d/*\nHost *\n Port 3");
    let directory = PathBuf::from("/home/me/.ssh/conf.d");
    world.files.insert(directory.join("1"), "User one\nHost b\nPort 1".to_owned());
    world.files.insert(directory.join("2"), "Port 2".to_owned());
    let get = |host: &str| resolve_in(&world, &query(host), None, None, &SshOptions::default());
    let a = get("a").unwrap();
    assert_eq!((a.user.as_str(), a.port), ("one", 2));
    let b = get("b").unwrap();
    assert_eq!((b.user.as_str(), b.port), ("me", 3));
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let error =
        resolve_in(&world("Include config"), &query("h"), None, None, &SshOptions::default());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_malformed_line_is_an_error_even_for_hosts_it_does_not_apply_to() {
    for text in ["\nPort x", "\nPort \"2", "Host other\nPort x", "\nMatch frob x", "\nHost"] {
        let error =
            resolve_in(&world(text), &query("h"), None, None, &SshOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.location(), "/home/me/.ssh/config:2", "{text}");
    }
}

#[test]
fn an_unknown_option_on_the_command_line_is_an_error() {
    for option in ["Frobnicate=yes", "Host=x", "Port", ""] {
        let options = SshOptions { options: vec![option.to_owned()], ..SshOptions::default() };
        let error = resolve_in(&Fake::default(), &query("h"), None, None, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{option}");
    }
}

/// Regression: they were refused as unknown, although the same lines in a file were accepted.
#[test]
fn options_without_effect_on_haul_are_accepted_on_the_command_line() {
    for option in ["LogLevel=ERROR", "ControlMaster no", "TCPKeepAlive=yes", "SendEnv=LANG"] {
        let options = SshOptions { options: vec![option.to_owned()], ..SshOptions::default() };
        resolve_in(&Fake::default(), &query("h"), None, None, &options).unwrap();
    }
}

#[test]
fn a_configuration_file_named_on_the_command_line_must_exist() {
    let options = SshOptions { config: ConfigFile::from("/nowhere"), ..SshOptions::default() };
    let error = resolve_in(&Fake::default(), &query("h"), None, None, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn authentication_methods_are_preferred_ones_that_are_enabled() {
    let config = resolved(
        "PreferredAuthentications gssapi-with-mic,password,publickey\nPubkeyAuthentication no",
        "h",
    );
    assert_eq!(config.methods, [Method::Password]);
}

/// The zone of an IPv6 address is the name of an interface.
#[test]
fn the_zone_of_an_address_keeps_its_case() {
    assert_eq!(resolved("", "FE80::1%Eth0").host_name, "fe80::1%Eth0");
}

/// As in `parse_jump` of OpenSSH 9.6 and later. Formerly, it was the whole value, which changed `%C`.
#[test]
fn percent_j_is_the_last_jump_host_without_user_and_port() {
    for (value, jump_host) in [
        ("one", "one"),
        ("me@one:23,ssh://you@two:24", "two"),
        ("one,me@[::1]:24", "::1"),
        ("none", ""),
    ] {
        let config = resolved(&format!("ProxyJump {value}\nIdentityFile /keys/%j-%r\n"), "h");
        assert_eq!(config.identity_files, [PathBuf::from(format!("/keys/{jump_host}-me"))]);
    }
    let of = |jump: &str| {
        let text = format!("HostName h\nUser u\nIdentityFile /%C\nProxyJump {jump}\n");
        resolved(&text, "h").identity_files
    };
    assert_eq!(of("me@two:24"), of("two"));
    // The SHA-1 of "hereh22utwo".
    assert_eq!(of("two"), [PathBuf::from("/6c5196c2c8e3d49876446651b735afcac0633df6")]);
}

proptest::proptest! {
    #[test]
    fn any_file_is_resolved_or_refused_without_panic(
        lines in proptest::collection::vec(
            "(Host|Match|Include|Port|ProxyJump|IdentityFile|RekeyLimit|ConnectTimeout)[ =]\\PC{0,20}",
            0..6,
        )
    ) {
        let world = world(&lines.join("\n"));
        let result = resolve_in(&world, &query("h"), None, None, &SshOptions::default());
        if let Err(error) = result {
            proptest::prop_assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }
}
