//! Compares what files are resolved to with `ssh -G`. The tests are skipped if ssh is not installed.

use super::*;

/// Whether ssh is installed; otherwise prints that the test is skipped.
fn is_openssh_installed() -> bool {
    let installed = std::process::Command::new("ssh").arg("-V").output().is_ok();
    if !installed {
        eprintln!("SKIPPED: ssh is not installed");
    }
    installed
}

/// Whether haul leaves an algorithm out of OpenSSH's list for an option (SECURITY.md).
fn is_left_out(option: &str, algorithm: &str) -> bool {
    algorithm.starts_with("ssh-dss")
        || (option == "hostkeyalgorithms" && algorithm.starts_with("sk-"))
}

/// Options with a list of signature algorithms.
const SIGNATURES: [&str; 3] =
    ["hostkeyalgorithms", "pubkeyacceptedalgorithms", "casignaturealgorithms"];

/// The options of a host as `ssh -G` prints them, each with all its values; without algorithms that haul leaves out.
fn openssh(config: &Path, host: &str) -> BTreeMap<String, Vec<String>> {
    let output = std::process::Command::new("ssh")
        .arg("-G")
        .arg("-F")
        .arg(config)
        .arg(host)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut options: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some((name, value)) = line.split_once(' ') {
            let mut value = value.to_owned();
            if SIGNATURES.contains(&name) {
                let algorithms = value.split(',').filter(|algorithm| !is_left_out(name, algorithm));
                value = algorithms.collect::<Vec<_>>().join(",");
            }
            options.entry(name.to_owned()).or_default().push(value);
        }
    }
    options
}

/// The options that haul has resolved, in the format of `ssh -G`.
fn ours(config: &HostConfig) -> Vec<(&'static str, Vec<String>)> {
    let flag = |on: bool| vec![if on { "yes" } else { "no" }.to_owned()];
    let seconds = |time: Option<Duration>| vec![time.map_or(0, |time| time.as_secs()).to_string()];
    let paths = |paths: &[PathBuf]| -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    };
    let allows = |method: Method| flag(config.methods.contains(&method));
    let strict = match config.strict_host_keys {
        StrictHostKeys::Yes => "true",
        StrictHostKeys::Ask => "ask",
        StrictHostKeys::AcceptNew => "accept-new",
        StrictHostKeys::No => "false",
    };
    let family = match config.family {
        Family::Any => "any",
        Family::V4 => "inet",
        Family::V6 => "inet6",
    };
    let host_keys = HOST_KEYS.select(config.host_key_algorithms.as_deref()).unwrap();
    let mut list = vec![
        ("hostname", vec![config.host_name.clone()]),
        ("port", vec![config.port.to_string()]),
        ("user", vec![config.user.clone()]),
        ("identitiesonly", flag(config.identities_only)),
        ("batchmode", flag(config.batch_mode)),
        ("compression", flag(config.compression)),
        ("hashknownhosts", flag(config.hash_known_hosts)),
        ("passwordauthentication", allows(Method::Password)),
        ("kbdinteractiveauthentication", allows(Method::KeyboardInteractive)),
        ("numberofpasswordprompts", vec![config.password_prompts.to_string()]),
        ("addressfamily", vec![family.to_owned()]),
        ("stricthostkeychecking", vec![strict.to_owned()]),
        ("userknownhostsfile", vec![paths(&config.user_known_hosts).join(" ")]),
        ("globalknownhostsfile", vec![paths(&config.global_known_hosts).join(" ")]),
        ("hostkeyalgorithms", vec![host_keys.join(",")]),
        ("pubkeyacceptedalgorithms", vec![config.user_keys.join(",")]),
        ("casignaturealgorithms", vec![config.ca_signatures.join(",")]),
        ("requiredrsasize", vec![config.required_rsa_bits.to_string()]),
    ];
    if config.identities_named {
        list.push(("identityfile", paths(&config.identity_files)));
    }
    if !config.certificate_files.is_empty() {
        list.push(("certificatefile", paths(&config.certificate_files)));
    }
    // The defaults of these differ from OpenSSH's on purpose.
    if config.connect_timeout != Some(CONNECT_TIMEOUT) {
        list.push(("connecttimeout", seconds(config.connect_timeout)));
    }
    if config.alive_interval != Some(ALIVE_INTERVAL) {
        list.push(("serveraliveinterval", seconds(config.alive_interval)));
    }
    if config.alive_count != ALIVE_COUNT {
        list.push(("serveralivecountmax", vec![config.alive_count.to_string()]));
    }
    let optional =
        [("hostkeyalias", &config.host_key_alias), ("bindaddress", &config.bind_address)];
    list.extend(
        optional.into_iter().filter_map(|(name, value)| Some((name, vec![value.clone()?]))),
    );
    match &config.route {
        Route::Direct => {}
        Route::Command(command) => list.push(("proxycommand", vec![command.clone()])),
        Route::Jump(hops) => {
            let hops = hops.iter().map(|hop| {
                let user = hop.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                let port = hop.port.map(|port| format!(":{port}")).unwrap_or_default();
                match hop.host.contains(':') {
                    true => format!("{user}[{}]{port}", hop.host),
                    false => format!("{user}{}{port}", hop.host),
                }
            });
            list.push(("proxyjump", vec![hops.collect::<Vec<_>>().join(",")]));
        }
    }
    list
}

#[test]
fn resolved_options_equal_those_of_openssh() {
    if !is_openssh_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    for text in [
        "",
        "IdentityFile /a\nIdentityFile \"/b c\"\nCertificateFile /d\nIdentitiesOnly yes\nHost h\nIdentityFile /e",
        "ProxyJump me@one:23,two\nProxyCommand nc %h %p\nBatchMode yes\nCompression yes",
        "ProxyCommand nc -x \"a b\" h 22\nProxyJump one\nHashKnownHosts yes\nCheckHostIP no",
        "ProxyJump none\nProxyCommand nc\nStrictHostKeyChecking no\nNumberOfPasswordPrompts 7",
        "UserKnownHostsFile /a /b\nGlobalKnownHostsFile /c\nStrictHostKeyChecking accept-new\nAddressFamily inet6",
        "ConnectTimeout 1m30s\nServerAliveInterval 0\nServerAliveCountMax 9\nStrictHostKeyChecking yes",
        "ServerAliveInterval 7\nPasswordAuthentication no\nChallengeResponseAuthentication no\nAddressFamily inet",
        "Match user root\n HostKeyAlias alias\n BindAddress 127.0.0.1\nMatch all\n HostName %h.%%.x\n User later",
        "Host !h *\n Port 5\nHost *,x\n Port 6\nHost h\n Port=7\n User=\"a\" # comment\n",
        "ForwardAgent yes\nSendEnv LANG LC_*\nControlMaster auto\nLogLevel QUIET\nPort 8",
    ] {
        assert_as_in_openssh(&file, text, &["h", "x", "user.example.org"]);
    }
}

/// Checks that hosts have the same options as in OpenSSH with the configuration `text`, which is written to `file`.
#[track_caller]
fn assert_as_in_openssh(file: &Path, text: &str, hosts: &[&str]) {
    std::fs::write(file, text).unwrap();
    let options = SshOptions { config: ConfigFile::Path(file.to_owned()), ..SshOptions::default() };
    for host in hosts {
        let config = resolve(None, host, None, &options).unwrap();
        let expected = openssh(file, host);
        for (name, values) in ours(&config) {
            assert_eq!(expected.get(name), Some(&values), "{name} of {host} in\n{text}");
        }
    }
}

/// The lists of key exchange methods, ciphers and MACs differ from OpenSSH's on purpose; these do not.
#[test]
fn by_default_signatures_and_rsa_keys_are_accepted_as_by_openssh() {
    if !is_openssh_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    std::fs::write(&file, "").unwrap();
    let expected = openssh(&file, "h");
    let found: BTreeMap<_, _> = ours(&resolved("", "h")).into_iter().collect();
    for option in SIGNATURES.into_iter().chain(["requiredrsasize"]) {
        assert_eq!(found.get(option), expected.get(option), "{option}");
    }
    for option in SIGNATURES {
        assert!(!found[option][0].is_empty() && !found[option][0].contains("ssh-rsa"), "{option}");
    }
}

/// haul has another order than OpenSSH within one pattern: certificates and longer digests come first.
#[test]
fn a_pattern_selects_the_signature_algorithms_that_it_does_in_openssh() {
    if !is_openssh_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    for option in ["HostKeyAlgorithms", "PubkeyAcceptedAlgorithms", "CASignatureAlgorithms"] {
        for value in
            ["*ed25519*", "ssh-*,rsa-*", "+ssh-rsa*", "^rsa-*", "-*nistp*", "-*@openssh.com"]
        {
            let text = format!("{option} {value}");
            std::fs::write(&file, &text).unwrap();
            let sorted = |values: &Vec<String>| {
                let mut algorithms: Vec<_> = values[0].split(',').map(str::to_owned).collect();
                algorithms.sort();
                algorithms
            };
            let found: BTreeMap<_, _> = ours(&resolved(&text, "h")).into_iter().collect();
            let name = &*option.to_ascii_lowercase();
            assert_eq!(sorted(&found[name]), sorted(&openssh(&file, "h")[name]), "{text}");
        }
    }
}

/// `Match` ignores the case of host names. `Host` and `Match user` do not.
#[test]
fn upper_case_matters_where_it_does_in_openssh() {
    if !is_openssh_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    for text in [
        "Host H\n Port 5\nHost h\n Port 6\nHost X*\n Port 7",
        "Match host H,*.EXAMPLE.org,!USER.example.ORG\n Port 5\nMatch originalhost \"!H,*\"\n Port 6",
        "HostName Real.%h\nMatch host REAL.H\n Port 5\nMatch host Real.X\n Port 6",
        "Match user ROOT\n Port 5\nMatch localuser ROOT\n Port 6",
        // For the second pass the name is in lower case.
        "Match final host X\n Port 5\nHost X\n User upper\n Compression yes\nHost x\n BatchMode yes",
        "HostName Real\nMatch final\n Port 5\nHost Real\n User upper\nHost real\n Compression yes",
        "CanonicalizeHostname yes\nMatch canonical\n Port 5\nHost H\n User upper\nHost h\n Compression yes",
    ] {
        assert_as_in_openssh(&file, text, &["h", "H", "x", "X", "User.Example.Org"]);
    }
}

/// Lines that OpenSSH accepts, in various spellings.
const LINES: [&str; 84] = [
    "Host h",
    "Host H",
    "Host other",
    "Host *",
    "Host h* !x",
    "Host real",
    "Host *.example.org other",
    "Match all",
    "Match host h",
    "Match host real,h",
    "Match host H,REAL",
    "Match originalhost other",
    "Match originalhost OTHER",
    "Match !originalhost h",
    "Match user nobody",
    "Match final host real",
    "Match final host REAL",
    "Match canonical",
    "Match exec \"test %n = h\"",
    "Match exec \"test -n %C\"",
    "Match originalhost other exec \"exit 1\"",
    "HostName real",
    "HostName Real",
    "HostName %h.example.org",
    "Port 22",
    "Port 2200",
    "Port ssh",
    "Port=2201 # a comment",
    "User them",
    "User = \"the other\"",
    "User me\u{e9}",
    "IdentityFile /keys/a",
    "IdentityFile \"/keys/with space\"",
    "CertificateFile /keys/c",
    "IdentitiesOnly yes",
    "ProxyJump one",
    "ProxyJump me@one:23,[::1]:24",
    "ProxyJump none",
    "ProxyCommand none",
    "ProxyCommand nc -x a b 1",
    "UserKnownHostsFile /a /b",
    "GlobalKnownHostsFile /c",
    "StrictHostKeyChecking off",
    "StrictHostKeyChecking ACCEPT-NEW",
    "HashKnownHosts yes",
    "HostKeyAlias alias",
    "ConnectTimeout 0",
    "ConnectTimeout 1h2m3",
    "ServerAliveInterval 7",
    "ServerAliveCountMax 5",
    "Compression YES",
    "PasswordAuthentication false",
    "KbdInteractiveAuthentication no",
    "PubkeyAuthentication unbound",
    "BatchMode true",
    "AddressFamily inet6",
    "BindAddress 127.0.0.1",
    "NumberOfPasswordPrompts 2",
    "HostKeyAlgorithms rsa-sha2-512,ssh-ed25519",
    "HostKeyAlgorithms +ssh-rsa,ssh-dss",
    "HostKeyAlgorithms -ecdsa-*",
    "HostKeyAlgorithms ^rsa-sha2-256,ecdsa-sha2-nistp256",
    "PubkeyAcceptedAlgorithms ssh-ed25519,sk-ssh-ed25519@openssh.com,rsa-sha2-256",
    "PubkeyAcceptedAlgorithms +ssh-rsa",
    "PubkeyAcceptedAlgorithms -sk-*,*nistp384*",
    "PubkeyAcceptedKeyTypes ^rsa-sha2-512",
    "CASignatureAlgorithms ssh-ed25519,ssh-rsa",
    "CASignatureAlgorithms +ssh-rsa",
    "CASignatureAlgorithms -rsa-*",
    "CASignatureAlgorithms ^ecdsa-sha2-nistp521",
    "RequiredRSASize 2048",
    "RequiredRSASize 3072",
    "RekeyLimit 1.5G 1h",
    "RekeyLimit 1T",
    "VerifyHostKeyDNS ask",
    "VerifyHostKeyDNS yes",
    "CanonicalizeHostname no",
    "CanonicalizeHostname yes",
    "ProxyUseFdpass no",
    "RevokedHostKeys /etc/ssh/revoked",
    "BindInterface eth9",
    "ForwardAgent yes",
    "SendEnv LANG LC_*",
    "ControlPath ~/.ssh/%C",
];

/// Options that haul may refuse for hosts they apply to.
const REFUSED: [&str; 2] = ["RevokedHostKeys", "BindInterface"];

#[test]
fn random_configurations_resolve_as_in_openssh() {
    if !is_openssh_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let mut state = 2_463_534_242_u32;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    for _ in 0..150 {
        let lines: Vec<&str> = (0..3 + random(12)).map(|_| LINES[random(LINES.len())]).collect();
        let text = lines.join("\n");
        std::fs::write(&file, &text).unwrap();
        let options =
            SshOptions { config: ConfigFile::Path(file.clone()), ..SshOptions::default() };
        for host in ["h", "H", "other"] {
            let config = match resolve(None, host, None, &options) {
                Ok(config) => config,
                Err(error) => {
                    let cause = error.to_string().to_ascii_lowercase();
                    let known =
                        REFUSED.iter().any(|name| cause.contains(&name.to_ascii_lowercase()));
                    assert!(known, "{host}: {error} in\n{text}");
                    continue;
                }
            };
            let expected = openssh(&file, host);
            for (name, values) in ours(&config) {
                assert_eq!(expected.get(name), Some(&values), "{name} of {host} in\n{text}");
            }
        }
    }
}

#[test]
fn the_connection_hash_percent_c_equals_that_of_openssh() {
    if !is_openssh_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let hash = directory.path().join("hash");
    let text = format!(
        "Host h\n HostName real\n Port 77\n User them\nMatch exec \"echo %C > {}\"\n Compression yes\n",
        hash.display()
    );
    std::fs::write(&file, text).unwrap();
    openssh(&file, "h");
    let expected = std::fs::read_to_string(&hash).unwrap();
    std::fs::remove_file(&hash).unwrap();
    let options = SshOptions { config: ConfigFile::Path(file), ..SshOptions::default() };
    resolve(None, "h", None, &options).unwrap();
    assert_eq!(std::fs::read_to_string(&hash).unwrap(), expected);
}
