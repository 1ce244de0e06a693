//! Common WebDAV clients against the server: litmus, rclone, cadaver, davfs2. Tests are skipped without the tool.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::guard::unshare_mounts_once;

use crate::site::{Site, has_tool, run};

#[test]
fn litmus_passes_every_suite() {
    if !has_tool("litmus") {
        return;
    }
    let site = Site::start();
    let (passed, output) = run(&site.outside(""), "litmus", &[&site.url("")]);
    println!("{output}");
    assert!(passed, "{output}");
    for suite in ["basic", "copymove", "props", "locks", "http"] {
        let summary = format!("<- summary for `{suite}'");
        let line = output.lines().find(|line| line.contains(&summary));
        assert!(line.is_some_and(|line| line.contains(" 0 failed")), "{suite}: {line:?}");
    }
}

#[test]
fn rclone_uploads_with_times_and_downloads() {
    if !has_tool("rclone") {
        return;
    }
    let site = Site::start();
    let local = site.outside("local");
    for (name, length) in [("a", 0), ("b c/ü&ö", 10), ("b c/d/large", 3_000_000)] {
        fs::create_dir_all(local.join(name).parent().unwrap()).unwrap();
        fs::write(local.join(name), vec![7; length]).unwrap();
        let file = fs::File::options().write(true).open(local.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_234_567_890)).unwrap();
    }
    // With vendor=owncloud, rclone preserves modification times.
    let remote = format!(":webdav,vendor=owncloud,url='{}':", site.url(""));
    let rclone = |args: &[&str]| {
        let (worked, output) =
            run(&site.outside(""), "rclone", &[&["--config", "/dev/null"], args].concat());
        assert!(worked, "{args:?}\n{output}");
        output
    };
    rclone(&["copy", "local", &format!("{remote}up")]);
    rclone(&["check", "local", &format!("{remote}up"), "--download"]);
    let time = fs::metadata(site.path("up/b c/d/large")).unwrap().modified().unwrap();
    assert_eq!(time, std::time::UNIX_EPOCH + Duration::from_secs(1_234_567_890));
    let output = rclone(&["copy", "-v", "local", &format!("{remote}up")]);
    assert!(!output.contains("Copied"), "nothing is copied twice: {output}");
    rclone(&["moveto", &format!("{remote}up/a"), &format!("{remote}up/b c/moved")]);
    rclone(&["copy", &format!("{remote}up"), "down"]);
    assert_eq!(fs::read(site.outside("down/b c/ü&ö")).unwrap(), vec![7; 10]);
    assert!(site.outside("down/b c/moved").exists());
    rclone(&["purge", &format!("{remote}up")]);
    assert!(!site.has("up"));
}

#[test]
fn cadaver_commands_work() {
    if !has_tool("cadaver") {
        return;
    }
    let site = Site::start();
    fs::write(site.outside("local"), "content").unwrap();
    let script = "mkcol dir\nput local dir/file\ncopy dir/file dir/copy\nmove dir/copy dir/moved\n\
                  lock dir/file\nput local dir/file\nunlock dir/file\npropset dir/file color red\n\
                  propget dir/file color\nget dir/moved got\nls dir\ndelete dir/moved\nquit\n";
    fs::write(site.outside("script"), script).unwrap();
    let line = format!("cadaver {} <script", site.url(""));
    let (_, output) = run(&site.outside(""), "sh", &["-c", &line]);
    assert_eq!(fs::read_to_string(site.outside("got")).unwrap(), "content", "{output}");
    assert!(output.contains("red"), "{output}");
    assert!(!output.contains("failed"), "{output}");
    assert!(site.has("dir/file") && !site.has("dir/moved"), "{output}");
}

#[test]
fn davfs2_mounts_the_server() {
    let is_root = rustix::process::geteuid().is_root();
    if !has_tool("mount.davfs") || !is_root || !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: davfs2 needs root and /dev/fuse");
        return;
    }
    unshare_mounts_once().unwrap();
    let site = Site::start();
    site.write("dir/file", "content");
    let home = site.outside("mount");
    // davfs2 runs as its own user, which must be able to enter the directory; ask_auth 0 disables prompts.
    fs::set_permissions(site.outside(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(home.join("on")).unwrap();
    fs::write(home.join("conf"), "ask_auth 0\ndelay_upload 0\n").unwrap();
    let on = home.join("on");
    let on = on.to_str().unwrap();
    let options = format!("conf={},uid=0,gid=0", home.join("conf").display());
    let (mounted, output) =
        run(&home, "mount", &["-t", "davfs", "-o", &options, &site.url(""), on]);
    if !mounted {
        eprintln!("SKIPPED: davfs2 cannot mount here: {output}");
        return;
    }
    let worked = std::panic::catch_unwind(|| {
        let on = Path::new(on);
        assert_eq!(fs::read_to_string(on.join("dir/file")).unwrap(), "content");
        fs::write(on.join("new"), "written").unwrap();
        fs::create_dir(on.join("made")).unwrap();
        fs::rename(on.join("dir/file"), on.join("made/moved")).unwrap();
        let begun = Instant::now();
        while fs::read(site.path("new")).unwrap_or_default() != b"written"
            && begun.elapsed() < Duration::from_secs(20)
        {
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(site.read("new"), "written");
        assert_eq!(site.read("made/moved"), "content");
        fs::remove_file(on.join("new")).unwrap();
        assert!(!site.has("new"));
    });
    let unmounted = Command::new("umount").arg(on).status().unwrap();
    worked.unwrap();
    assert!(unmounted.success());
}
