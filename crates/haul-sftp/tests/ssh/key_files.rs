//! Encrypted key files of OpenSSL and OpenSSH, old and new: the supported encryptions work, and an error
//! names any other one without a prompt for the passphrase.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use haul_sftp::ssh::SshOptions;
use haul_storage::ErrorKind;

use crate::prompter::ScriptedUser;
use crate::sshd::{Sshd, output};
use crate::{greet, host_with_prompter};

const PASSPHRASE: &str = "secr\u{e9}t";

/// Runs a shell command in a server's directory, and returns whether it succeeded.
fn shell(sshd: &Sshd, line: &str) -> bool {
    let path = sshd.path("");
    let done = Command::new("sh").arg("-c").arg(line).current_dir(&path).output().unwrap();
    done.status.success()
}

/// A key file in a server's directory, made readable by its owner only.
fn key(sshd: &Sshd, name: &str) -> PathBuf {
    let path = sshd.path(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A server that accepts an RSA key, `rsa`, and a P-256 key, `ec`, both unencrypted.
fn server() -> Sshd {
    let sshd = Sshd::start();
    assert!(shell(&sshd, "openssl genrsa -traditional -out rsa 2048"));
    assert!(shell(&sshd, "openssl ecparam -name prime256v1 -genkey -noout -out ec"));
    for name in ["rsa", "ec"] {
        let path = key(&sshd, name);
        let public = output(Command::new("ssh-keygen").arg("-y").arg("-f").arg(&path));
        fs::write(sshd.path(&format!("{name}.pub")), format!("{public}\n")).unwrap();
        sshd.authorize(&path, "");
    }
    sshd
}

#[tokio::test]
async fn keys_encrypted_by_openssl_are_used_with_the_supported_ciphers() {
    let sshd = server();
    for (name, line) in [
        ("rsa-des", "openssl rsa -in rsa -traditional -provider legacy -provider default -des"),
        ("rsa-des3", "openssl rsa -in rsa -traditional -des3"),
        ("rsa-aes128", "openssl rsa -in rsa -traditional -aes128"),
        ("rsa-aes192", "openssl rsa -in rsa -traditional -aes192"),
        ("rsa-aes256", "openssl rsa -in rsa -traditional -aes256"),
        ("ec-aes256", "openssl ec -in ec -aes256"),
        ("pkcs8", "openssl pkcs8 -topk8 -in ec"),
        ("pkcs8-aes192", "openssl pkcs8 -topk8 -in ec -v2 aes192"),
        ("pkcs8-des3", "openssl pkcs8 -topk8 -in rsa -v2 des3"),
        ("pkcs8-sha1", "openssl pkcs8 -topk8 -in rsa -v2 aes-256-cbc -v2prf hmacWithSHA1"),
        ("pkcs8-sha512", "openssl pkcs8 -topk8 -in rsa -v2 aes-256-cbc -v2prf hmacWithSHA512"),
        ("pkcs8-scrypt", "openssl pkcs8 -topk8 -in ec -scrypt"),
        ("pbe-3des", "openssl pkcs8 -topk8 -in rsa -v1 PBE-SHA1-3DES"),
        ("pbe-2des", "openssl pkcs8 -topk8 -in rsa -v1 PBE-SHA1-2DES"),
    ] {
        if !shell(&sshd, &format!("{line} -passout pass:{PASSPHRASE} -out {name}")) {
            eprintln!("SKIPPED: this OpenSSL does not write {name}");
            continue;
        }
        let user = ScriptedUser::responding(&["wrong", PASSPHRASE]);
        let options = SshOptions { identities: vec![key(&sshd, name)], ..sshd.options() };
        let connection = host_with_prompter(&sshd, &options, user.clone()).connect().await;
        let connection = connection.unwrap_or_else(|error| panic!("{name}: {error}"));
        greet(&connection).await.unwrap();
        assert_eq!(user.shown_count("Enter passphrase for key"), 2, "{name}");
        assert_eq!(user.shown_count("the passphrase is wrong"), 1, "{name}");
    }
}

#[tokio::test]
async fn keys_encrypted_by_openssh_are_used_with_every_kind_of_cipher() {
    let sshd = server();
    for cipher in [
        "3des-cbc",
        "aes128-cbc",
        "aes192-ctr",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
    ] {
        let name = cipher.split('@').next().unwrap();
        fs::copy(sshd.path("rsa"), sshd.path(name)).unwrap();
        let path = key(&sshd, name);
        let line = format!("ssh-keygen -q -p -P '' -N {PASSPHRASE} -a 4 -Z {cipher} -f {name}");
        assert!(shell(&sshd, &line), "{cipher}");
        let user = ScriptedUser::responding(&["wrong", PASSPHRASE]);
        let options = SshOptions { identities: vec![path], ..sshd.options() };
        let connection = host_with_prompter(&sshd, &options, user.clone()).connect().await;
        greet(&connection.unwrap_or_else(|error| panic!("{cipher}: {error}"))).await.unwrap();
        assert_eq!(user.shown_count("the passphrase is wrong"), 1, "{cipher}");
    }
}

#[tokio::test]
async fn an_unsupported_encryption_is_named_without_a_prompt() {
    let sshd = server();
    let legacy = "-provider legacy -provider default";
    for (name, line, cipher) in [
        ("camellia", "openssl rsa -in rsa -traditional -camellia256", "CAMELLIA-256-CBC"),
        (
            "pkcs8-camellia",
            "openssl pkcs8 -topk8 -in rsa -v2 camellia-256-cbc",
            "CAMELLIA-256-CBC with a key by PBKDF2",
        ),
        (
            "pbe-rc2",
            &format!("openssl pkcs8 -topk8 -in rsa -v1 PBE-SHA1-RC2-128 {legacy}"),
            "PBE-SHA1-RC2-128",
        ),
        (
            "pbe-md5",
            &format!("openssl pkcs8 -topk8 -in rsa -v1 PBE-MD5-DES {legacy}"),
            "PBE-MD5-DES",
        ),
    ] {
        if !shell(&sshd, &format!("{line} -passout pass:{PASSPHRASE} -out {name}")) {
            eprintln!("SKIPPED: this OpenSSL does not write {name}");
            continue;
        }
        let user = ScriptedUser::responding(&[PASSPHRASE]);
        let path = key(&sshd, name);
        let options = SshOptions { identities: vec![path.clone()], ..sshd.options() };
        let error = host_with_prompter(&sshd, &options, user.clone()).connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        let text = error.to_string();
        assert!(text.contains(cipher), "{name}: {text}");
        assert!(text.contains(&format!("ssh-keygen -p -f {}", path.display())), "{text}");
        assert_eq!(user.shown_count("passphrase"), 0, "{:?}", user.prompts_shown());
    }
}
