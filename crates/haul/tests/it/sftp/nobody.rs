//! SFTP servers whose sessions run as an ordinary user, while haul runs as root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use super::line_for;
use super::sshd::{Sshd, output};
use crate::faults::{as_nobody, is_root};
use crate::serve::Serving;
use crate::session::Session;

/// A server whose sessions run as the user `nobody`, the owner of the directory `far` of the test's session.
pub(super) struct Nobody {
    pub(super) name: &'static str,
    pub(super) session: Session,
    /// `far` as a location.
    location: String,
    options: String,
    _server: Runs,
}

#[expect(dead_code, reason = "they run until they are dropped")]
enum Runs {
    OpenSsh(Sshd),
    Haul(Serving),
}

impl Nobody {
    /// OpenSSH's server and haul's. Empty, with the reason printed, without root.
    pub(super) fn all() -> Vec<Self> {
        if !is_root() {
            eprintln!("SKIPPED: a server of another user needs root");
            return Vec::new();
        }
        vec![Self::openssh(), Self::haul()]
    }

    fn session() -> Session {
        let session = Session::new().directory("far").directory("home");
        fs::set_permissions(session.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        chown(session.path("far"), Some(65534), Some(65534)).unwrap();
        session
    }

    fn openssh() -> Self {
        let (session, sshd) = (Self::session(), Sshd::start());
        // sshd reads the authorized keys as the user.
        fs::set_permissions(sshd.path(""), fs::Permissions::from_mode(0o711)).unwrap();
        let far = session.path("far");
        let location = format!("sftp://nobody@{}{}/", sshd.address(), far.display());
        let mut options = format!("-F none -i {}", sshd.user_key().display());
        for option in sshd.isolated() {
            options.push_str(&format!(" -o {option}"));
        }
        Self { name: "OpenSSH", session, location, options, _server: Runs::OpenSsh(sshd) }
    }

    fn haul() -> Self {
        let session = Self::session();
        let key = session.path("key");
        let mut make = std::process::Command::new("ssh-keygen");
        output(make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
        let line = "serve sftp far --listen 127.0.0.1:0 --authorized-keys key.pub --user me --json";
        let (serving, object) = Serving::parsed(as_nobody(&session, line));
        let address = object["address"].as_str().unwrap();
        let port = address.rsplit(':').next().unwrap();
        let known = format!("[127.0.0.1]:{port} {}\n", object["host_key"].as_str().unwrap());
        session.write("known", known);
        let location = format!("sftp://me@{address}/");
        let options = "-F none -i key -o UserKnownHostsFile=known -o IdentityAgent=none".to_owned();
        Self { name: "haul", session, location, options, _server: Runs::Haul(serving) }
    }

    /// A command in which `@/` is the directory `far`.
    pub(super) fn line(&self, line: &str) -> String {
        line_for(line, &self.location, &self.options)
    }
}
