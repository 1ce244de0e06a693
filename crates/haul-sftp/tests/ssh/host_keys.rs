//! Host key verification.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;

use futures_util::future::join_all;
use haul_sftp::ssh::SshOptions;
use haul_storage::{Error, ErrorKind, Retry};

use crate::prompter::ScriptedUser;
use crate::sshd::{Sshd, output, public};
use crate::{greet, host, host_with_prompter, with};

/// Checks that the error is a refused host key, and returns its message.
fn refused(error: &Error) -> String {
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Unauthenticated, Retry::Never),
        "{error}"
    );
    assert_eq!(error.operation(), "verify the host key");
    error.to_string()
}

/// The fingerprint of a host key as ssh-keygen prints it.
fn fingerprint(sshd: &Sshd, kind: &str) -> String {
    let mut command = Command::new("ssh-keygen");
    let line = output(command.arg("-lf").arg(sshd.host_key(kind).with_extension("pub")));
    line.split(' ').nth(1).unwrap().to_owned()
}

/// Empties the known_hosts file.
fn forget(sshd: &Sshd) {
    fs::write(sshd.known_hosts(), "").unwrap();
}

#[tokio::test]
async fn without_a_terminal_an_unknown_host_is_refused_with_its_fingerprint() {
    let sshd = Sshd::start();
    forget(&sshd);
    let error = host(&sshd, &sshd.options()).connect().await.unwrap_err();
    let text = refused(&error);
    for part in [&fingerprint(&sshd, "ed25519"), &sshd.known_name(), "ED25519"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(error.hint().unwrap().contains("--accept-new-host-keys"));
    assert_eq!(fs::read_to_string(sshd.known_hosts()).unwrap(), "");
}

#[tokio::test]
async fn an_unknown_host_is_accepted_by_yes_or_by_its_fingerprint() {
    let sshd = Sshd::start();
    let fingerprint = fingerprint(&sshd, "ed25519");
    for responses in [&["perhaps", "yes"][..], &[&fingerprint]] {
        forget(&sshd);
        let user = ScriptedUser::responding(responses);
        let host = host_with_prompter(&sshd, &sshd.options(), Arc::clone(&user) as _);
        // Concurrent connections prompt once.
        for connection in join_all((0..3).map(|_| host.connect())).await {
            greet(&connection.unwrap()).await.unwrap();
        }
        assert_eq!(user.shown_count("Continue connecting"), 1, "{:?}", user.prompts_shown());
        assert_eq!(user.shown_count(&fingerprint), 2, "{:?}", user.prompts_shown());
        // The host is known from now on, to OpenSSH too.
        greet(&crate::host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();
        let mut find = Command::new("ssh-keygen");
        find.arg("-F").arg(sshd.known_name()).arg("-f").arg(sshd.known_hosts());
        assert!(output(&mut find).contains("ssh-ed25519"));
    }
}

#[tokio::test]
async fn an_unknown_host_is_refused_by_no_and_prompted_for_once() {
    let sshd = Sshd::start();
    forget(&sshd);
    let user = ScriptedUser::responding(&["no"]);
    let host = host_with_prompter(&sshd, &sshd.options(), Arc::clone(&user) as _);
    for result in join_all((0..3).map(|_| host.connect())).await {
        refused(&result.unwrap_err());
    }
    assert_eq!(user.prompts_shown().len(), 1);
}

#[tokio::test]
async fn new_keys_are_accepted_without_a_prompt_if_configured() {
    let sshd = Sshd::start();
    let file = sshd.path("new/known_hosts");
    let known = format!("UserKnownHostsFile={}", file.display());
    for (accept, more) in [
        (true, "StrictHostKeyChecking=ask"),
        (false, "StrictHostKeyChecking=accept-new"),
        (false, "StrictHostKeyChecking=no"),
    ] {
        let options = with(sshd.options(), &[&known, more, "HashKnownHosts=yes"]);
        let options = SshOptions { accept_new_host_keys: accept, ..options };
        greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("|1|") && text.lines().count() == 1, "{text}");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let mut find = Command::new("ssh-keygen");
        output(find.arg("-F").arg(sshd.known_name()).arg("-f").arg(&file));
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
    let strict = with(sshd.options(), &[&known, "StrictHostKeyChecking=yes"]);
    refused(&host(&sshd, &strict).connect().await.unwrap_err());
}

#[tokio::test]
async fn a_changed_key_is_refused_under_every_setting_and_its_line_named() {
    let sshd = Sshd::start();
    let other = sshd.new_key("other", "ed25519", "");
    let text = format!("# a comment\n{} {}", sshd.known_name(), public(&other));
    fs::write(sshd.known_hosts(), &text).unwrap();
    for checking in ["ask", "no", "accept-new", "yes"] {
        let options = with(sshd.options(), &[&format!("StrictHostKeyChecking={checking}")]);
        let options = SshOptions { accept_new_host_keys: true, ..options };
        let user = ScriptedUser::responding(&["yes"]);
        let host = host_with_prompter(&sshd, &options, Arc::clone(&user) as _);
        let error = host.connect().await.unwrap_err();
        let message = refused(&error);
        let line = format!("{}:2", sshd.known_hosts().display());
        let advice = format!("ssh-keygen -f '{}' -R", sshd.known_hosts().display());
        for part in ["HAS CHANGED", &fingerprint(&sshd, "ed25519"), &line, &advice] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert!(user.prompts_shown().is_empty());
        assert_eq!(fs::read_to_string(sshd.known_hosts()).unwrap(), text);
    }
}

#[tokio::test]
async fn the_known_key_type_is_preferred_in_negotiation() {
    let sshd = Sshd::builder().host_keys(&["ed25519", "ecdsa", "rsa"]).start();
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let line = format!("{} {}", sshd.known_name(), public(&sshd.host_key(kind)));
        fs::write(sshd.known_hosts(), line).unwrap();
        greet(&host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_host_known_by_another_type_of_key_is_not_new() {
    let sshd = Sshd::start();
    let other = sshd.new_key("other", "ecdsa", "");
    fs::write(sshd.known_hosts(), format!("{} {}", sshd.known_name(), public(&other))).unwrap();
    let options = SshOptions { accept_new_host_keys: true, ..sshd.options() };
    let text = refused(&host(&sshd, &options).connect().await.unwrap_err());
    assert!(text.contains("though its ECDSA key is"), "{text}");
}

#[tokio::test]
async fn a_revoked_key_is_refused_even_if_it_is_known() {
    let sshd = Sshd::start();
    let known = fs::read_to_string(sshd.known_hosts()).unwrap();
    let text = format!("{known}@revoked * {}", public(&sshd.host_key("ed25519")));
    fs::write(sshd.known_hosts(), text).unwrap();
    let options = with(sshd.options(), &["StrictHostKeyChecking=no"]);
    let text = refused(&host(&sshd, &options).connect().await.unwrap_err());
    assert!(text.contains("is revoked by") && text.contains("known_hosts:2"), "{text}");
}

/// Otherwise another machine at the same address would receive the password.
#[tokio::test]
async fn the_first_accepted_key_is_pinned_for_the_run_whatever_known_hosts_contains() {
    let mut sshd = Sshd::start();
    let other = sshd.new_key("other", "ed25519", "");
    let (first, second) = (public(&sshd.host_key("ed25519")), public(&other));
    let name = sshd.known_name();
    let own = fs::read(sshd.host_key("ed25519")).unwrap();
    for (known, more) in [
        // A known_hosts file that stores nothing; one with both keys.
        ("/dev/null".to_owned(), "StrictHostKeyChecking=no"),
        (sshd.known_hosts().display().to_string(), "StrictHostKeyChecking=yes"),
    ] {
        fs::write(sshd.host_key("ed25519"), &own).unwrap();
        sshd.restart();
        fs::write(sshd.known_hosts(), format!("{name} {first}{name} {second}")).unwrap();
        let options = with(sshd.options(), &[&format!("UserKnownHostsFile={known}"), more]);
        let host = host(&sshd, &options);
        greet(&host.connect().await.unwrap()).await.unwrap();
        fs::copy(&other, sshd.host_key("ed25519")).unwrap();
        sshd.restart();
        // In the same run: another connection, and the host of another location.
        for host in [host, crate::host(&sshd, &options)] {
            let text = refused(&host.connect().await.unwrap_err());
            assert!(text.contains("different host key than earlier"), "{text}");
        }
        // In another run.
        let options = with(sshd.options(), &[&format!("UserKnownHostsFile={known}"), more]);
        greet(&crate::host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn short_rsa_keys_and_excluded_signature_algorithms_are_refused() {
    let sshd = Sshd::builder().host_keys(&["rsa"]).start();
    let refuses = async |options: &[&str], why: &str| {
        let error = host(&sshd, &with(sshd.options(), options)).connect().await.unwrap_err();
        assert!(error.to_string().contains(why), "{options:?}: {error}");
    };
    refuses(&["RequiredRSASize=3072"], "has 2048 bits, and RequiredRSASize is 3072").await;
    refuses(&["HostKeyAlgorithms=-rsa-*"], "no common host key algorithm").await;
    let options = with(sshd.options(), &["RequiredRSASize=2048", "HostKeyAlgorithms=rsa-sha2-256"]);
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn user_keys_that_the_configuration_excludes_are_not_offered() {
    let sshd = Sshd::start();
    let rsa = sshd.new_key("rsa_key", "rsa", "");
    sshd.authorize(&rsa, "");
    let by_rsa = SshOptions { identities: vec![rsa], ..sshd.options() };
    for (options, more, why) in [
        (sshd.options(), "PubkeyAcceptedAlgorithms=-ssh-ed25519", "does not include ssh-ed25519"),
        (sshd.options(), "PubkeyAcceptedKeyTypes=ecdsa-*", "does not include ssh-ed25519"),
        (by_rsa.clone(), "PubkeyAcceptedAlgorithms=-rsa-sha2-*", "does not include"),
        (by_rsa.clone(), "RequiredRSASize=3072", "has 2048 bits, and RequiredRSASize is 3072"),
    ] {
        let error = host(&sshd, &with(options, &[more])).connect().await.unwrap_err();
        assert_eq!(error.operation(), "authenticate", "{error}");
        assert!(error.to_string().contains(why), "{more}: {error}");
    }
    for more in ["PubkeyAcceptedAlgorithms=rsa-sha2-256", "RequiredRSASize=2048"] {
        let options = with(by_rsa.clone(), &[more]);
        greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    }
}

/// An attacker who can make two keys with the same SHA-1 can have one certified and use the other.
#[tokio::test]
async fn a_certificate_signed_with_sha1_counts_only_if_the_user_disables_checking() {
    let sshd = Sshd::builder().certificate(&["-n", "127.0.0.1"]).start();
    let authority = sshd.new_key("rsa_authority", "rsa", "");
    let mut sshd = sshd;
    let known = format!("@cert-authority * {}", public(&authority));
    fs::write(sshd.known_hosts(), known).unwrap();
    for (algorithm, options, good) in [
        ("rsa-sha2-512", &[][..], true),
        ("rsa-sha2-512", &["CASignatureAlgorithms=-rsa-*"], false),
        ("rsa-sha2-256", &["CASignatureAlgorithms=rsa-sha2-256"], true),
        ("rsa-sha2-256", &["RequiredRSASize=3072"], false),
        ("ssh-rsa", &[], false),
        ("ssh-rsa", &["StrictHostKeyChecking=no"], true),
    ] {
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-q", "-h", "-I", "host", "-n", "127.0.0.1", "-t", algorithm, "-s"]);
        sign.arg(&authority).arg(sshd.host_key("ed25519").with_extension("pub"));
        assert!(sign.status().unwrap().success());
        sshd.restart();
        let result = host(&sshd, &with(sshd.options(), options)).connect().await;
        assert_eq!(result.is_ok(), good, "{algorithm} {options:?} {result:?}");
        if let Err(error) = result {
            let text = refused(&error);
            let why = ["CASignatureAlgorithms", "RequiredRSASize"];
            assert!(why.iter().any(|why| text.contains(why)), "{text}");
        }
    }
}

#[tokio::test]
async fn hashed_names_scanned_keys_wildcards_and_aliases_are_found() {
    let sshd = Sshd::start();
    let mut scan = Command::new("ssh-keyscan");
    let scanned = output(scan.args(["-T", "10", "-p", &sshd.port().to_string()]).arg(sshd.host()));
    fs::write(sshd.known_hosts(), scanned + "\n").unwrap();
    greet(&host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();

    let mut hash = Command::new("ssh-keygen");
    output(hash.arg("-H").arg("-f").arg(sshd.known_hosts()));
    let hashed = fs::read_to_string(sshd.known_hosts()).unwrap();
    assert!(hashed.contains("|1|") && !hashed.contains(&sshd.host()), "{hashed}");
    greet(&host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();

    let key = public(&sshd.host_key("ed25519"));
    for (names, alias, known) in [
        ("127.0.0.*", "HostKeyAlias=", true),
        ("[127.*]:*", "HostKeyAlias=", true),
        // `*` matches the name with its port, as in OpenSSH.
        ("*,!127.0.0.1", "HostKeyAlias=", true),
        ("*,!127.0.0.1,![127.0.0.1]:*", "HostKeyAlias=", false),
        ("nickname", "HostKeyAlias=nickname", true),
        ("nickname", "HostKeyAlias=other", false),
    ] {
        fs::write(sshd.known_hosts(), format!("{names} {key}")).unwrap();
        let options =
            if alias.ends_with('=') { sshd.options() } else { with(sshd.options(), &[alias]) };
        let result = host(&sshd, &options).connect().await;
        assert_eq!(result.is_ok(), known, "{names} {alias}");
    }
}

#[tokio::test]
async fn a_key_in_the_second_or_the_global_file_is_found() {
    let sshd = Sshd::start();
    let known = sshd.known_hosts().display().to_string();
    for options in [
        [
            format!("UserKnownHostsFile=/no/such/file {known}"),
            "GlobalKnownHostsFile=none".to_owned(),
        ],
        ["UserKnownHostsFile=none".to_owned(), format!("GlobalKnownHostsFile={known}")],
    ] {
        let options = with(sshd.options(), &[&options[0], &options[1]]);
        greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_host_certificate_of_a_known_authority_is_accepted() {
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let builder = Sshd::builder().host_keys(&[kind]);
        let sshd = builder.certificate(&["-n", "127.0.0.1,other", "-V", "+1h"]).start();
        greet(&host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_host_certificate_for_another_name_or_time_is_refused_with_the_reason() {
    for (arguments, why) in [
        (&["-n", "other.example.org"][..], "is for other.example.org, not for 127.0.0.1"),
        (&["-n", "127.0.0.1", "-V", "20200101:20200102"], "is not valid at this time"),
        (&[], "is for , not for"),
    ] {
        let sshd = Sshd::builder().certificate(arguments).start();
        let text = refused(&host(&sshd, &sshd.options()).connect().await.unwrap_err());
        assert!(text.contains(why), "{text}");
    }
}

/// OpenSSH does so since 10.3.
#[tokio::test]
async fn names_in_a_host_certificate_may_be_patterns() {
    for (names, is_for) in [("127.0.0.*", true), ("127.0.0.?", true), ("*.example.org", false)] {
        let sshd = Sshd::builder().certificate(&["-n", names]).start();
        let result = host(&sshd, &sshd.options()).connect().await;
        assert_eq!(result.is_ok(), is_for, "{names}");
    }
}

/// OpenSSH converts the name of the host to lower case, but not those in a certificate.
#[tokio::test]
async fn capital_letters_in_a_host_certificate_match_no_host() {
    for (named, alias, is_accepted) in
        [("host", "HOST", true), ("HOST", "HOST", false), ("HOST", "host", false)]
    {
        let sshd = Sshd::builder().certificate(&["-n", named]).start();
        fs::write(
            sshd.known_hosts(),
            format!("@cert-authority * {}", public(&sshd.path("authority"))),
        )
        .unwrap();
        let options = with(sshd.options(), &[&format!("HostKeyAlias={alias}")]);
        match host(&sshd, &options).connect().await {
            Ok(connection) => greet(&connection).await.unwrap(),
            Err(error) => {
                let text = refused(&error);
                assert!(!is_accepted && text.contains("is for HOST, not for host"), "{text}");
                continue;
            }
        }
        assert!(is_accepted, "{named} {alias}");
    }
}

#[tokio::test]
async fn a_host_certificate_of_another_or_a_revoked_authority_is_refused() {
    let sshd = Sshd::builder().certificate(&["-n", "127.0.0.1"]).start();
    let known = fs::read_to_string(sshd.known_hosts()).unwrap();
    let other = sshd.new_key("other_authority", "ed25519", "");
    fs::write(sshd.known_hosts(), format!("@cert-authority * {}", public(&other))).unwrap();
    let text = refused(&host(&sshd, &sshd.options()).connect().await.unwrap_err());
    assert!(text.contains("which is not a @cert-authority"), "{text}");
    let revoked = format!("{known}@revoked * {}", public(&sshd.path("authority")));
    fs::write(sshd.known_hosts(), revoked).unwrap();
    let text = refused(&host(&sshd, &sshd.options()).connect().await.unwrap_err());
    assert!(text.contains("is revoked by"), "{text}");
    // The key may be known itself although its certificate is not trusted.
    let key = public(&sshd.host_key("ed25519"));
    let both = format!("@cert-authority * {}{} {key}", public(&other), sshd.known_name());
    fs::write(sshd.known_hosts(), both).unwrap();
    greet(&host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();
}

/// The server chooses the names in its certificate, and they appear in the prompt about its key.
#[tokio::test]
async fn names_in_a_certificate_are_escaped_in_the_prompt() {
    let evil = "a\u{1b}[2J\nContinue connecting (yes/no)? yes\n";
    let sshd = Sshd::builder().certificate(&["-n", evil]).start();
    let user = ScriptedUser::responding(&["no"]);
    let options = with(sshd.options(), &["StrictHostKeyChecking=ask"]);
    let error = host_with_prompter(&sshd, &options, user.clone()).connect().await.unwrap_err();
    let (prompt, text) = (user.prompts_shown().remove(0), error.to_string());
    assert!(prompt.contains("a\\033[2J\\012Continue"), "{prompt}");
    assert!(!prompt.contains('\u{1b}') && !text.contains('\u{1b}'), "{prompt:?}, {text:?}");
    assert_eq!((prompt.lines().count(), text.lines().count()), (2, 1), "{prompt}, {text}");
}
