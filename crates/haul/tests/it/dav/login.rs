//! Authentication.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{DavServer, other, servers};
use crate::serve::Serving;
use crate::session::Session;

/// Checks that a server with the user "ada" and the password "right horse" refuses another password, and that haul
/// takes the right one from `HAUL_PASSWORD` and from `~/.netrc`.
fn check_password(session: &Session, url: &str, root: &std::path::Path) {
    session.write("src", "content");
    let with = |password: &str| {
        let mut command = session.command(&format!("cp src {url}up"));
        let output = command.env("HAUL_PASSWORD", password).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, stderr) = with("wrong horse");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("password") || stderr.contains("401"), "{stderr}");
    assert!(!stderr.contains("wrong horse") && !root.join("up").exists(), "{stderr}");
    eprintln!("{stderr}");
    assert_eq!(with("right horse").0, Some(0));
    assert_eq!(fs::read_to_string(root.join("up")).unwrap(), "content");
    // The password in ~/.netrc, which only its owner may read.
    let netrc = session.path("home/.netrc");
    session.write("home/.netrc", "machine 127.0.0.1 login ada password \"right horse\"\n");
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    session.haul(&format!("cp src {url}second")).status(0);
    let anonymous = url.replacen("ada@", "", 1);
    session.haul(&format!("cp {anonymous}second got")).status(0);
    assert_eq!(session.read("got"), "content");
}

#[test]
fn haul_accepts_only_the_right_password() {
    let session = Session::new().directory("far").file("secret", "right horse\n");
    let line = "serve dav far --listen 127.0.0.1:0 --user ada --password-command cat<secret";
    let (_serving, object) = Serving::json(&session, line);
    let url = object["url"].as_str().unwrap().replacen("http://", "dav://ada@", 1);
    check_password(&session, &url, &session.path("far"));
}

/// Apache with Digest authentication for ada; `None` without Apache.
pub(crate) fn apache_by_digest(session: &Session) -> Option<DavServer> {
    // MD5 of "ada:far:right horse", as htdigest writes it (RFC 7616, A1).
    session.write("secret", "ada:far:right horse");
    let digest = session.tool("md5sum secret");
    let digest = digest.split_whitespace().next().unwrap();
    session.write("users", format!("ada:far:{digest}\n"));
    for path in ["", "users"] {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(session.path(path), mode).unwrap();
    }
    let lines = format!(
        "AuthType Digest\nAuthName far\nAuthDigestProvider file\nAuthUserFile {}\n\
         Require valid-user",
        session.path("users").display()
    );
    let modules = ["authn_core", "authn_file", "authz_user", "auth_digest"];
    other("Apache", servers::apache_with(&modules, &lines))
}

#[test]
fn apache_with_digest_accepts_only_the_right_password() {
    let session = Session::new();
    let Some(server) = apache_by_digest(&session) else { return };
    let url = server.url.replacen("dav://", "dav://ada@", 1);
    check_password(&session, &url, &server.root);
}
