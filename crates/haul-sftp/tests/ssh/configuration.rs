//! ssh_config: haul's interpretation compared with that of `ssh -G`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use haul_sftp::ssh::{ConfigFile, NoPrompter, SshHost, SshOptions};

use crate::sshd::output;

/// The options of a host according to `ssh -G`.
fn openssh(config: &Path, options: &[&str], host: &str) -> BTreeMap<String, String> {
    let mut command = Command::new("ssh");
    command.arg("-G").arg("-F").arg(config);
    for option in options {
        command.arg("-o").arg(option);
    }
    output(command.arg(host))
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

const CONFIGURATIONS: [&str; 8] = [
    "Host *\n User everybody\n Port 2200\nHost a\n User late\n",
    "Port 1\nHost a b\n HostName %h.example.org\n Port 2\nHost * !a\n User not-a\n Port 3\n",
    "Host a?\n Port 5\nHost ?\n HostName=\"one letter\"\n User = \"quoted\"\n",
    "Match host a\n Port 7\nMatch originalhost b user root\n Port 8\nMatch !host a\n User other\n",
    "Host a\n HostName real\nMatch host real\n Port 9\nMatch originalhost real\n Port 10\n",
    "Match exec \"test %h = a\"\n Port 11\nMatch exec false\n Port 12\nMatch localuser * user *\n User u\n",
    "Host a\n HostName real\nMatch final host real\n Port 13\nMatch all\n User all\n",
    "Include PARTS/*.conf\nHost *\n Port 14\n",
];

#[test]
fn user_host_name_and_port_match_those_of_openssh() {
    let directory = tempfile::tempdir().unwrap();
    let parts = directory.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    std::fs::write(parts.join("1.conf"), "Host a\n Port 20\n User one\n").unwrap();
    std::fs::write(parts.join("2.conf"), "User two\nHost b\n Port 21\n").unwrap();
    std::fs::write(parts.join("3.other"), "Port 22\n").unwrap();
    let file = directory.path().join("config");
    for configuration in CONFIGURATIONS {
        let text = configuration.replace("PARTS", &parts.display().to_string());
        std::fs::write(&file, text).unwrap();
        for host in ["a", "b", "ab", "real"] {
            for options in [&[][..], &["Port=99"], &["User=option", "HostName=x%h"]] {
                let expected = openssh(&file, options, host);
                let ours = SshOptions {
                    config: ConfigFile::Path(file.clone()),
                    options: options.iter().map(|&option| option.to_owned()).collect(),
                    ..SshOptions::default()
                };
                let ours = SshHost::resolve(None, host, None, &ours, Arc::new(NoPrompter)).unwrap();
                assert_eq!(
                    [ours.user(), ours.host_name(), &ours.port().to_string()],
                    ["user", "hostname", "port"].map(|name| expected[name].as_str()),
                    "{host} with {options:?} in\n{configuration}"
                );
            }
        }
    }
}

#[test]
fn a_configuration_that_openssh_refuses_is_refused_with_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    for bad in [
        "Port x",
        "Port",
        "Match frobnicate x",
        "BatchMode maybe",
        "User \"x",
        "Host",
        "AddressFamily x",
    ] {
        std::fs::write(&file, format!("User u\n{bad}\n")).unwrap();
        let refused = Command::new("ssh").arg("-G").arg("-F").arg(&file).arg("h").output().unwrap();
        assert!(!refused.status.success(), "{bad}");
        let options =
            SshOptions { config: ConfigFile::Path(file.clone()), ..SshOptions::default() };
        let error = SshHost::resolve(None, "h", None, &options, Arc::new(NoPrompter)).unwrap_err();
        assert_eq!(error.location(), format!("{}:2", file.display()), "{bad}");
    }
}

#[test]
fn user_and_port_of_the_location_override_options() {
    let options = SshOptions {
        config: ConfigFile::None,
        options: vec!["Port=1".to_owned(), "User=x".to_owned()],
        ..SshOptions::default()
    };
    let host = SshHost::resolve(Some("me"), "h", Some(2), &options, Arc::new(NoPrompter)).unwrap();
    assert_eq!((host.user(), host.port()), ("me", 2));
}

#[test]
fn names_that_a_shell_or_ssh_would_misread_are_refused() {
    let options = SshOptions { config: ConfigFile::None, ..SshOptions::default() };
    for host in ["-oProxyCommand=x", "", "a b", "$(reboot)", "a`b`", "a;b"] {
        assert!(
            SshHost::resolve(None, host, None, &options, Arc::new(NoPrompter)).is_err(),
            "{host}"
        );
    }
    for user in ["-oProxyCommand=x", "", "`reboot`", "a;b", "a -b"] {
        let host = SshHost::resolve(Some(user), "h", None, &options, Arc::new(NoPrompter));
        assert!(host.is_err(), "{user}");
    }
}

/// As with `ssh`, including Debian's exception for groups of one member: the file of `-F` is not checked, but
/// included files are refused if others can write them.
#[test]
fn an_included_file_that_others_can_write_is_refused_as_by_openssh() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    let directory = tempfile::tempdir().unwrap();
    if directory.path().metadata().unwrap().uid() != 0 {
        eprintln!("skipped: giving files to other users needs root");
        return;
    }
    let (file, part) = (directory.path().join("config"), directory.path().join("part"));
    // Through a link, whose own mode must not count.
    std::fs::write(directory.path().join("real"), "Port 5\n").unwrap();
    symlink("real", &part).unwrap();
    std::fs::write(&file, format!("Include {}\n", part.display())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let options = SshOptions { config: ConfigFile::Path(file.clone()), ..SshOptions::default() };
    // Group 0 has root as its only member, group 50 (staff) has none; 65534 is the user `nobody`.
    for (owner, group, mode, good) in [
        (0, 0, 0o644, true),
        (0, 0, 0o664, true),
        (0, 0, 0o602, false),
        (0, 50, 0o664, false),
        (0, 50, 0o644, true),
        (65_534, 0, 0o644, false),
    ] {
        chown(&part, Some(owner), Some(group)).unwrap();
        std::fs::set_permissions(&part, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut ssh = Command::new("ssh");
        let theirs = ssh.arg("-G").arg("-F").arg(&file).arg("h").output().unwrap();
        assert_eq!(theirs.status.success(), good, "{owner} {group} {mode:o}");
        match SshHost::resolve(None, "h", None, &options, Arc::new(NoPrompter)) {
            Ok(host) => assert!(good && host.port() == 5, "{owner} {group} {mode:o}"),
            Err(error) => {
                assert!(!good && error.to_string().contains("bad owner or permissions"), "{error}");
                assert_eq!(error.location(), part.to_string_lossy());
            }
        }
    }
}

/// Such a name in a known_hosts file would match other hosts, or be a marker, a hash or a comment.
#[test]
fn a_host_name_that_is_a_known_hosts_pattern_is_refused_from_every_source() {
    let resolve = |host: &str, options: &[&str]| {
        let options = SshOptions {
            config: ConfigFile::None,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            ..SshOptions::default()
        };
        SshHost::resolve(None, host, None, &options, Arc::new(NoPrompter))
    };
    for name in ["*", "*,x", "a?", "!a", "a,b", "@revoked", "|1|x", "#a"] {
        assert!(resolve(name, &[]).is_err(), "{name}");
        assert!(resolve("h", &[&format!("HostName={name}")]).is_err(), "HostName={name}");
        assert!(resolve("h", &[&format!("HostKeyAlias={name}")]).is_err(), "HostKeyAlias={name}");
        let jump = SshOptions {
            config: ConfigFile::None,
            // A comma separates hosts there.
            jump: Some(name.replace("a,b", "*,b")),
            ..SshOptions::default()
        };
        assert!(
            SshHost::resolve(None, "h", None, &jump, Arc::new(NoPrompter)).is_err(),
            "-J {name}"
        );
    }
    // A pattern is allowed as a name that only selects a block of the configuration.
    assert!(resolve("a*", &["HostName=real"]).is_ok());
    assert!(resolve("h", &["HostKeyAlias=[127.0.0.1]:2222"]).is_ok());
}
