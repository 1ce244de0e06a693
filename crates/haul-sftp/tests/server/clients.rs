//! The server with widespread clients: OpenSSH, PuTTY, rclone, lftp, curl, paramiko, sshfs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::login::{PASSWORD, Site};

/// Whether a program is installed; otherwise prints that the test is skipped.
fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success();
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| ((n as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[track_caller]
fn same(a: &Path, b: &Path) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{} and {}", a.display(), b.display());
}

/// Makes a tree for copying: `a/b/file`, an empty file, an empty directory.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("a/b/file"), content(700_001)).unwrap();
    fs::write(root.join("a/none"), "").unwrap();
}

#[track_caller]
fn same_tree(a: &Path, b: &Path) {
    same(&a.join("a/b/file"), &b.join("a/b/file"));
    assert_eq!(fs::metadata(b.join("a/none")).unwrap().len(), 0);
    assert!(b.join("empty").is_dir());
}

#[tokio::test]
async fn the_commands_of_sftp_work() {
    let site = Site::new().await;
    fs::write(site.here("file"), content(5_000_000)).unwrap();
    tree(&site.here("tree"));
    let out = site
        .run(site.sftp(
            "put file\nget file back\nput -r tree\nget -r tree fetched\n\
             rename file moved\nln -s moved link\nln moved hard\nchmod 600 moved\n\
             ls -la\ndf\npwd\nmkdir dir\nrmdir dir\nrm hard\n-rm none\ncopy moved copied\n\
             put -p file dated\nput -f file synced\n",
        ))
        .await;
    same(&site.here("file"), &site.here("back"));
    same(&site.here("file"), &site.served("moved"));
    same(&site.here("file"), &site.served("copied"));
    same(&site.here("file"), &site.served("synced"));
    same_tree(&site.here("tree"), &site.served("tree"));
    same_tree(&site.here("tree"), &site.here("fetched"));
    assert_eq!(fs::read_link(site.served("link")).unwrap(), Path::new("moved"));
    assert!(!site.served("hard").exists());
    assert!(out.contains("-rw-------"), "{out}");
    assert!(out.contains("%Capacity"), "{out}");
    assert!(out.contains("Remote working directory: /"), "{out}");
}

#[tokio::test]
async fn sftp_resumes_partial_files() {
    let site = Site::new().await;
    let whole = content(3_000_000);
    fs::write(site.served("down"), &whole).unwrap();
    fs::write(site.here("down"), &whole[..1_000_000]).unwrap();
    fs::write(site.here("up"), &whole).unwrap();
    fs::write(site.served("up"), &whole[..1_234_567]).unwrap();
    site.run(site.sftp("reget down\nreput up\n")).await;
    assert!(fs::read(site.here("down")).unwrap() == whole);
    assert!(fs::read(site.served("up")).unwrap() == whole);
}

#[tokio::test]
async fn scp_copies_trees_and_the_legacy_protocol_is_refused_with_a_reason() {
    let site = Site::new().await;
    tree(&site.here("tree"));
    let mut up = site.command("scp");
    up.args(site.ssh_options()).args(["-r", "tree", "me@127.0.0.1:"]);
    site.run(up).await;
    same_tree(&site.here("tree"), &site.served("tree"));
    let mut down = site.command("scp");
    down.args(site.ssh_options()).args(["-rp", "me@127.0.0.1:tree", "back"]);
    site.run(down).await;
    same_tree(&site.here("tree"), &site.here("back"));
    let mut old = site.command("scp");
    old.args(site.ssh_options()).args(["-O", "tree/a/none", "me@127.0.0.1:"]);
    let output = site.fails(old).await;
    assert!(output.contains("this server speaks SFTP, not the old protocol of scp"), "{output}");
    let mut shell = site.command("ssh");
    shell.args(site.ssh_options()).args(["me@127.0.0.1", "id"]);
    let output = site.fails(shell).await;
    assert!(output.contains("it runs no commands"), "{output}");
}

#[tokio::test]
async fn scp_and_pscp_download_large_files_completely() {
    let site = Site::new().await;
    fs::write(site.served("file"), content(32 << 20)).unwrap();
    let has_pscp = has("pscp");
    for _ in 0..4 {
        let mut down = site.command("scp");
        down.args(site.ssh_options()).args(["me@127.0.0.1:file", "scp"]);
        site.run(down).await;
        same(&site.served("file"), &site.here("scp"));
        fs::remove_file(site.here("scp")).unwrap();
        if has_pscp {
            let mut down = site.command("pscp");
            down.args(["-sftp", "-P", &site.port().to_string(), "-pw", PASSWORD, "-batch"]);
            down.args(["-hostkey", site.server.fingerprint(), "me@127.0.0.1:file", "pscp"]);
            site.run(down).await;
            same(&site.served("file"), &site.here("pscp"));
            fs::remove_file(site.here("pscp")).unwrap();
        }
    }
}

#[tokio::test]
async fn files_are_intact_with_various_ciphers_key_exchanges_and_compression() {
    let site = Site::new().await;
    fs::write(site.here("file"), content(1_000_000)).unwrap();
    for option in [
        "Ciphers=aes128-gcm@openssh.com",
        "Ciphers=aes256-gcm@openssh.com",
        "Ciphers=chacha20-poly1305@openssh.com",
        "Ciphers=aes128-ctr",
        "Ciphers=aes256-ctr",
        "Compression=yes",
        "KexAlgorithms=ecdh-sha2-nistp256",
        "KexAlgorithms=curve25519-sha256@libssh.org",
        "MACs=hmac-sha2-512",
        "RekeyLimit=100K",
    ] {
        fs::write(site.here("batch"), "put file up\nget up down\n").unwrap();
        let mut command = site.command("sftp");
        command.args(["-o", option]).args(site.ssh_options()).args(["-b", "batch", "me@127.0.0.1"]);
        site.run(command).await;
        same(&site.here("file"), &site.here("down"));
        fs::remove_file(site.here("down")).unwrap();
        fs::remove_file(site.served("up")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_are_served_at_once() {
    let site = Site::new().await;
    fs::write(site.here("file"), content(2_000_000)).unwrap();
    let mut running = Vec::new();
    for n in 0..8 {
        fs::write(site.here(&format!("batch{n}")), format!("put file f{n}\nget f{n} g{n}\n"))
            .unwrap();
        let mut command = site.command("sftp");
        command.args(site.ssh_options()).args(["-b", &format!("batch{n}"), "me@127.0.0.1"]);
        running.push(command.stdout(Stdio::null()).spawn().unwrap());
    }
    for mut one in running {
        let status = tokio::task::spawn_blocking(move || one.wait().unwrap()).await.unwrap();
        assert!(status.success());
    }
    for n in 0..8 {
        same(&site.here("file"), &site.here(&format!("g{n}")));
    }
}

#[tokio::test]
async fn a_file_of_three_gibibytes_is_copied_intact_both_ways() {
    let site = Site::new().await;
    // A sparse file with marks: it reveals errors at offsets above 2 GiB, as of signed 32-bit sums.
    let file = fs::File::create(site.here("large")).unwrap();
    use std::os::unix::fs::FileExt;
    for mark in 0..48u64 {
        file.write_all_at(&mark.to_le_bytes(), mark << 26).unwrap();
    }
    file.set_len((3 << 30) + 77).unwrap();
    drop(file);
    site.run(site.sftp("put large up\n")).await;
    let mut compare = site.command("cmp");
    compare.arg("large").arg(site.served("up"));
    site.run(compare).await;
    fs::remove_file(site.here("large")).unwrap();
    site.run(site.sftp("get up down\n")).await;
    let mut compare = site.command("cmp");
    compare.arg("down").arg(site.served("up"));
    site.run(compare).await;
}

#[tokio::test]
async fn rclone_copies_and_checks() {
    if !has("rclone") {
        return;
    }
    let site = Site::new().await;
    tree(&site.here("tree"));
    let remote = format!(
        ":sftp,host=127.0.0.1,user=me,port={},key_file={},shell_type=none:",
        site.port(),
        site.beside("key").display()
    );
    for arguments in [
        vec!["copy", "--create-empty-src-dirs", "tree", &format!("{remote}tree")],
        vec!["check", "--download", "tree", &format!("{remote}tree")],
        vec!["copy", "--create-empty-src-dirs", &format!("{remote}tree"), "back"],
        vec!["about", &remote],
        vec!["moveto", &format!("{remote}tree/a/none"), &format!("{remote}none")],
    ] {
        let mut command = site.command("rclone");
        command.args(["--config", "/dev/null"]).args(arguments);
        site.run(command).await;
    }
    same(&site.here("tree/a/b/file"), &site.here("back/a/b/file"));
    assert!(site.served("none").exists());
    assert!(!site.served("tree/a/none").exists());
}

#[tokio::test]
async fn lftp_mirrors_both_ways() {
    if !has("lftp") {
        return;
    }
    let site = Site::new().await;
    tree(&site.here("tree"));
    let ssh = format!("ssh -a -x {}", site.ssh_options().join(" "));
    let script = format!(
        "set sftp:connect-program \"{ssh}\"; set net:max-retries 1; open -u me,none \
         sftp://127.0.0.1; mirror -R tree up; mirror up back; chmod 600 up/a/none; \
         mv up/a/none none; rm none; ls"
    );
    let mut command = site.command("lftp");
    command.args(["--norc", "-c", &script]);
    site.run(command).await;
    same(&site.here("tree/a/b/file"), &site.served("up/a/b/file"));
    same(&site.here("tree/a/b/file"), &site.here("back/a/b/file"));
    assert!(!site.served("none").exists());
}

#[tokio::test]
async fn psftp_on_which_filezilla_is_based_works() {
    if !has("psftp") {
        return;
    }
    let site = Site::new().await;
    fs::write(site.here("file"), content(2_000_000)).unwrap();
    fs::write(
        site.here("batch"),
        "put file up\nget up down\nmkdir dir\nmv up dir/moved\nls dir\nchmod 600 dir/moved\n\
         cd dir\npwd\ndel moved\n",
    )
    .unwrap();
    let mut command = site.command("psftp");
    command.args(["-P", &site.port().to_string(), "-l", "me", "-pw", PASSWORD, "-batch"]).args([
        "-hostkey",
        site.server.fingerprint(),
        "-b",
        "batch",
        "127.0.0.1",
    ]);
    let out = site.run(command).await;
    same(&site.here("file"), &site.here("down"));
    assert!(out.contains("moved"), "{out}");
    assert!(!site.served("dir/moved").exists() && site.served("dir").is_dir());
}

#[tokio::test]
async fn curl_uploads_downloads_lists_and_renames() {
    if !has("curl") {
        return;
    }
    let site = Site::new().await;
    fs::write(site.here("file"), content(3_000_000)).unwrap();
    let url = |path: &str| format!("sftp://127.0.0.1:{}/{path}", site.port());
    let fingerprint = site.server.fingerprint().trim_start_matches("SHA256:").to_owned();
    let curl = |arguments: &[&str]| {
        let mut command = site.command("curl");
        command.args(["-q", "-sS", "--user", &format!("me:{PASSWORD}")]);
        command.args(["--hostpubsha256", &fingerprint]).args(arguments);
        command
    };
    site.run(curl(&["-T", "file", &url("up")])).await;
    same(&site.here("file"), &site.served("up"));
    site.run(curl(&["-o", "down", &url("up")])).await;
    same(&site.here("file"), &site.here("down"));
    let names = ["-Q", "mkdir /dir", "-Q", "rename /up /dir/moved"];
    let listed = site.run(curl(&[&names[..], &[url("").as_str()]].concat())).await;
    assert!(listed.contains("dir") && !listed.contains("up"), "{listed}");
    site.run(curl(&["-Q", "rm /dir/moved", &url("")])).await;
    assert!(!site.served("dir/moved").exists() && site.served("dir").is_dir());
}

#[tokio::test]
async fn paramiko_reads_ahead_and_writes_behind() {
    let python = "/usr/bin/python3";
    let mut probe = Command::new(python);
    probe.args(["-c", "import paramiko"]).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: paramiko is not installed");
        return;
    }
    let site = Site::new().await;
    fs::write(site.here("file"), content(3_000_000)).unwrap();
    fs::write(
        site.here("script.py"),
        r#"
import sys, paramiko
transport = paramiko.Transport(("127.0.0.1", int(sys.argv[1])))
transport.connect(username="me", password=sys.argv[2])
sftp = paramiko.SFTPClient.from_transport(transport)
sftp.put("file", "up")
sftp.get("up", "down")
with sftp.open("piped", "wb") as f:
    f.set_pipelined(True)
    for n in range(100):
        f.write(bytes([n]) * 1000)
    f.truncate(99_000)
with sftp.open("piped", "rb") as f:
    f.prefetch()
    data = f.read()
assert data == b"".join(bytes([n]) * 1000 for n in range(99)), len(data)
sftp.mkdir("dir")
sftp.posix_rename("piped", "dir/renamed")
sftp.symlink("dir/renamed", "link")
assert sftp.readlink("link") == "dir/renamed"
assert sftp.normalize("dir/../link") == "/dir/renamed", sftp.normalize("dir/../link")
sftp.utime("up", (1000, 2000))
assert sftp.stat("up").st_mtime == 2000
assert sorted(sftp.listdir(".")) == ["dir", "link", "up"]
# A second channel of the same connection.
other = paramiko.SFTPClient.from_transport(transport)
other.remove("link")
try:
    sftp.stat("link")
    raise SystemExit("it is still there")
except FileNotFoundError:
    pass
transport.close()
"#,
    )
    .unwrap();
    let mut command = site.command(python);
    command.args(["script.py", &site.port().to_string(), PASSWORD]);
    site.run(command).await;
    same(&site.here("file"), &site.here("down"));
}

#[tokio::test]
async fn sshfs_mounts_the_server() {
    if !has("sshfs") || !has("fusermount3") {
        return;
    }
    let site = Site::new().await;
    fs::create_dir(site.here("mnt")).unwrap();
    let mut mount = site.command("sshfs");
    let options = site.ssh_options();
    mount.args(["me@127.0.0.1:/", "mnt"]).args(&options[2..]).args(["-F", "/dev/null"]);
    let mounted = tokio::task::spawn_blocking(move || mount.output().unwrap()).await.unwrap();
    if !mounted.status.success() {
        eprintln!("SKIPPED: sshfs cannot mount: {}", String::from_utf8_lossy(&mounted.stderr));
        return;
    }
    let mut work = site.command("sh");
    work.args([
        "-ec",
        "mkdir mnt/dir; head -c 3000000 /dev/urandom >mnt/dir/file; cp mnt/dir/file back; \
         cmp mnt/dir/file back; mv mnt/dir/file mnt/moved; chmod 600 mnt/moved; \
         ln -s moved mnt/link; cmp mnt/link back; truncate -s 5 mnt/moved; ls -la mnt; df mnt",
    ]);
    let outcome = tokio::task::spawn_blocking(move || work.output().unwrap()).await.unwrap();
    let mut unmount = site.command("fusermount3");
    unmount.args(["-u", "mnt"]);
    site.run(unmount).await;
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(fs::metadata(site.served("moved")).unwrap().len(), 5);
}
