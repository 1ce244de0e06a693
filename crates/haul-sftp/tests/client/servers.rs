//! Servers other than OpenSSH: a file is copied up and down while the keys are renewed about every mebibyte, by
//! haul, by the server, and by both (Dropbear: by haul only). ProFTPD is tested for its digests.
//!
//! Servers come from Debian's packages; for those that are only libraries, the programs in `tests/peers`
//! are built here with Debian's compilers.

use std::fs::Permissions;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use haul_bench::guard::end_with_thread;
use haul_sftp::SshDial;
use haul_sftp::ssh::SshHost;
use haul_storage::{
    Block, CommitOptions, CreateOptions, DigestKind, Metadata, Range, RelPath, Storage, conformance,
};

use crate::opened;
use crate::peer::{self, Peer};
use crate::pipe::SFTP_SERVER;
use crate::sshd::{output, shadow};

const MEBIBYTE: usize = 1 << 20;

/// Bytes of the file, and of each write.
const LENGTH: usize = 10 * MEBIBYTE;
const PIECE: usize = 256 << 10;

/// The option with which haul renews the keys.
const OFTEN: &str = "RekeyLimit=1M";

/// Minimum key exchanges of an upload where haul has the limit: it sends no data during an exchange.
const EXACT: u32 = 8;

/// Minimum key exchanges otherwise: the sender continues until it sees the KEXINIT, and libssh and Go begin
/// an exchange some time after their limit.
const LOOSE: u32 = 1;

/// Copies a file to a server and back, with at least `least` key exchanges up and down.
async fn copies(host: SshHost, least: [u32; 2]) {
    let host = Arc::new(host);
    let [served, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let root = served.path().as_os_str().as_encoded_bytes();
    let storage = opened(SshDial::new(Arc::clone(&host)), root, &journals).await;
    let path = RelPath::parse("file").unwrap();
    let mut state = 1_u32;
    let content: Bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(LENGTH)
    .collect();

    let file = storage.create(&path, &CreateOptions::default()).await.unwrap();
    let pieces = (0..LENGTH).step_by(PIECE);
    let writes =
        pieces.map(|at| file.write_at(at as u64, Block::from(content.slice(at..at + PIECE))));
    let written: Vec<()> = stream::iter(writes).buffer_unordered(8).try_collect().await.unwrap();
    assert_eq!(written.len(), LENGTH / PIECE);
    let options = CommitOptions {
        metadata: Metadata::default(),
        replace: false,
        sync: false,
        expected: None,
    };
    file.commit(LENGTH as u64, &options).await.unwrap();
    assert!(std::fs::read(served.path().join("file")).unwrap() == content, "corrupted by upload");
    let up = host.key_exchanges();

    let file = storage.open(&path).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, LENGTH as u64));
    let mut read = Vec::new();
    while let Some(block) = blocks.next().await {
        read.extend(block.unwrap().pieces().iter().flat_map(|piece| piece.to_vec()));
    }
    assert!(read == content, "corrupted by download");
    let down = host.key_exchanges() - up;
    // The first one opened the connection.
    assert!(up > least[0] && down >= least[1], "{up} key exchanges up, {down} down");
}

/// Copies while haul renews the keys, then the server, then both. `start` takes the server's limit.
async fn copies_with_limits_on_either_side(start: impl Fn(usize) -> Command) {
    let server = Peer::start(start(0));
    copies(server.host(&[OFTEN]), [EXACT, LOOSE]).await;
    let server = Peer::start(start(MEBIBYTE));
    copies(server.host(&[]), [LOOSE, LOOSE]).await;
    copies(server.host(&["RekeyLimit=700K"]), [EXACT, LOOSE]).await;
}

/// Whether all these paths exist; otherwise prints that the test is skipped.
fn all_exist(needed: &[&str], package: &str) -> bool {
    let missing = needed.iter().find(|path| !Path::new(path).exists());
    if let Some(path) = missing {
        eprintln!("SKIPPED: no {path} ({package})");
    }
    missing.is_none()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(path)
}

/// Runs a command that builds a server or its key.
fn built(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_on_libssh_survive_rekeying_by_either_side() {
    if !all_exist(&["/usr/include/libssh/server.h", SFTP_SERVER], "libssh-dev") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("server");
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program);
    gcc.arg(source("libssh/server.c")).arg("-lssh");
    built(gcc);
    copies_with_limits_on_either_side(|limit| {
        let mut command = Command::new(&program);
        command.args([&limit.to_string(), SFTP_SERVER]);
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_on_go_survive_rekeying_by_either_side() {
    const GO: &str = "/usr/lib/go/bin/go";
    const CODE: &str = "/usr/share/gocode";
    let needed = [
        GO,
        "/usr/share/gocode/src/golang.org/x/crypto/ssh/server.go",
        "/usr/share/gocode/src/github.com/pkg/sftp/server.go",
    ];
    if !all_exist(&needed, "golang-go, golang-golang-x-crypto-dev, golang-github-pkg-sftp-dev") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("server");
    let mut go = Command::new(GO);
    go.args(["build", "-p", "2", "-o"]).arg(&program).arg("main.go");
    // Debian's sources, without modules or network.
    go.current_dir(source("go")).env("GO111MODULE", "off").env("GOPATH", CODE);
    go.env("GOCACHE", directory.path().join("cache")).env("GOFLAGS", "").env_remove("GOROOT");
    built(go);
    copies_with_limits_on_either_side(|limit| {
        let mut command = Command::new(&program);
        command.arg(limit.to_string());
        command
    })
    .await;
}

/// Dropbear has no setting for its limit. It is started per connection, as by inetd, in a mount
/// namespace where root has the test's password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_on_dropbear_survive_rekeying_by_haul() {
    const DROPBEAR: &str = "/usr/sbin/dropbear";
    const KEY: &str = "/usr/bin/dropbearkey";
    // The path compiled into dropbear.
    const PROGRAM: &str = "/usr/lib/sftp-server";
    if !all_exist(&[DROPBEAR, KEY, PROGRAM], "dropbear-bin, openssh-sftp-server") {
        return;
    }
    if output(Command::new("id").arg("-u")) != "0" {
        eprintln!("SKIPPED: dropbear with a password of the test's own needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    let made = output(Command::new(KEY).args(["-t", "ed25519", "-f"]).arg(&key));
    let public = made.lines().find(|line| line.starts_with("ssh-ed25519 ")).unwrap();
    std::fs::write(directory.path().join("shadow"), shadow("root", peer::PASSWORD)).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let known = directory.path().join("known_hosts");
    std::fs::write(&known, format!("[127.0.0.1]:{port} {public}\n")).unwrap();
    let script = format!(
        "mount --bind {}/shadow /etc/shadow && exec {DROPBEAR} -i -r {}",
        directory.path().display(),
        key.display()
    );
    // The thread ends with the test program.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = OwnedFd::from(stream.unwrap());
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
            command.stdout(Stdio::from(stream.try_clone().unwrap())).stdin(Stdio::from(stream));
            let mut server = command.spawn().unwrap();
            std::thread::spawn(move || server.wait().unwrap());
        }
    });
    copies(peer::host(Some("root"), port, &peer::options(&known, &[OFTEN])), [EXACT, LOOSE]).await;
}

/// ProFTPD computes digests, but does not announce that in version 3 of the protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proftpd_reports_digests() {
    const PROFTPD: &str = "/usr/sbin/proftpd";
    const MODULES: &str = "/usr/lib/proftpd";
    if !all_exist(&[PROFTPD, "/usr/lib/proftpd/mod_sftp.so"], "proftpd-core, proftpd-mod-crypto") {
        return;
    }
    if output(Command::new("id").arg("-u")) != "0" {
        eprintln!("SKIPPED: ProFTPD with an account of the test's own needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f"]).arg(path("key"));
    built(keygen);
    let hash = shadow("root", peer::PASSWORD);
    let hash = hash.lines().find_map(|line| line.strip_prefix("root:")?.split(':').next());
    let account = format!("root:{}:0:0::{}:/bin/sh\n", hash.unwrap(), directory.path().display());
    std::fs::write(path("passwd"), account).unwrap();
    std::fs::set_permissions(path("passwd"), Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir(path("served")).unwrap();
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let here = directory.path().display();
    let configuration = format!(
        "ServerType standalone\nDefaultAddress 127.0.0.1\nPort {port}\nPidFile {here}/pid\n\
         ScoreboardFile none\nDelayEngine off\nModulePath {MODULES}\nLoadModule mod_sftp.c\n\
         User root\nGroup root\nAuthUserFile {here}/passwd\nAuthOrder mod_auth_file.c\n\
         RootLogin on\nRequireValidShell off\nUseReverseDNS off\nWtmpLog off\nTransferLog none\n\
         SystemLog none\nUseFtpUsers off\nSFTPEngine on\nSFTPHostKey {here}/key\nSFTPLog none\n\
         SFTPAuthMethods password\n"
    );
    std::fs::write(path("conf"), configuration).unwrap();
    let mut command = Command::new(PROFTPD);
    command.args(["--nodaemon", "--quiet", "-c"]).arg(path("conf"));
    end_with_thread(&mut command);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let started = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed().as_secs() < 20 && server.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let public = std::fs::read_to_string(path("key.pub")).unwrap();
    std::fs::write(path("known"), format!("[127.0.0.1]:{port} {public}")).unwrap();
    let host = peer::host(Some("root"), port, &peer::options(&path("known"), &[]));
    let journals = tempfile::tempdir().unwrap();
    let served = path("served");
    let root = served.as_os_str().as_encoded_bytes();
    let storage = opened(SshDial::new(Arc::new(host)), root, &journals).await;
    assert_eq!(storage.capabilities().digests, [DigestKind::Sha256]);
    for case in conformance::cases() {
        if case.name().starts_with("digests::") {
            let outcome = case.run(Arc::clone(&storage) as Arc<dyn Storage>).await;
            assert!(outcome.is_ok(), "{}: {}", case.name(), outcome.unwrap_err());
        }
    }
    drop(storage);
    server.kill().unwrap();
    server.wait().unwrap();
}
