//! A ProFTPD for one test, on a free port, that computes digests of files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use haul_bench::guard::end_with_thread;
use tempfile::TempDir;

use crate::vsftpd::start;

const PROFTPD: &str = "/usr/sbin/proftpd";
const MODULES: &str = "/usr/lib/proftpd";

pub const USER: &str = "ada";
pub const PASSWORD: &str = "secret";

/// A running ProFTPD; dropping it stops the server.
pub struct Proftpd {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Proftpd {
    /// Starts one with further lines in its configuration; prints the reason and returns `None` if it
    /// is not installed, or without root.
    pub fn start(more: &str) -> Option<Self> {
        let module = Path::new(MODULES).join("mod_digest.so");
        if !Path::new(PROFTPD).exists() || !module.exists() || !rustix::process::getuid().is_root()
        {
            eprintln!("skipped: ProFTPD (Debian's package proftpd-core) and root are needed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().display();
        fs::create_dir_all(dir.path().join("root/up")).unwrap();
        // PASSWORD, hashed by crypt(3).
        let hash = "$6$haul$vphvyQQmQ51exdnPQLS41ner2e934ideSM8X5hoVjXVUmc1HFWAtcDu.SrHR/3vRfMijn1h4eSBFSmdT1SEEa1";
        let accounts = dir.path().join("passwd");
        fs::write(&accounts, format!("{USER}:{hash}:0:0::{here}/root:/bin/sh\n")).unwrap();
        fs::set_permissions(&accounts, fs::Permissions::from_mode(0o600)).unwrap();
        let configuration = format!(
            "ServerType standalone\nDefaultAddress 127.0.0.1\nUseIPv6 off\nPidFile {here}/pid\n\
             ScoreboardFile none\nDelayEngine off\nModulePath {MODULES}\nLoadModule mod_digest.c\n\
             DigestEngine on\nUser root\nGroup root\nAuthUserFile {here}/passwd\n\
             AuthOrder mod_auth_file.c\nRootLogin on\nUseFtpUsers off\nRequireValidShell off\n\
             UseReverseDNS off\nWtmpLog off\nTransferLog none\nSystemLog none\nAllowOverwrite on\n\
             AllowStoreRestart on\nAllowRetrieveRestart on\nMaxInstances none\n\
             DefaultRoot ~\nPassivePorts 1024 9999\n{more}\n"
        );
        let file = dir.path().join("proftpd.conf");
        let (child, port) = start(|port| {
            fs::write(&file, format!("{configuration}Port {port}\n")).unwrap();
            let mut command = Command::new(PROFTPD);
            command.args(["--nodaemon", "--quiet", "-c"]).arg(&file);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            end_with_thread(&mut command);
            command.spawn().unwrap()
        });
        Some(Self { child, port, dir })
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The directory `/up` of the server.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root/up")
    }
}

impl Drop for Proftpd {
    fn drop(&mut self) {
        // Its sessions end when their connections do.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
