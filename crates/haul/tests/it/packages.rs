//! A short test of the packages: they are built as by `scripts/release`, but from the program that is tested here, and
//! installed, upgraded and removed in an empty directory. `scripts/release-test` does the same with the released binary
//! in a complete system.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::session::Session;

/// The files that are staged for packages.
struct Packages {
    session: Session,
    scripts: PathBuf,
}

impl Packages {
    /// `None`, with the reason printed, without a tool.
    fn stage(tools: &[&str]) -> Option<Self> {
        let session = Self::session(tools)?;
        // Stripped, the program has a tenth of its size, which saves time.
        let stripped = session.path("haul").display().to_string();
        session.tool(&format!("strip -o {stripped} {}", env!("CARGO_BIN_EXE_haul")));
        Some(Self::staged(session, &[&stripped, "stage"]))
    }

    /// As [`Self::stage`]; also `None`, with the reason printed, without root.
    fn to_install(tools: &[&str]) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("SKIPPED: installing packages needs root");
        }
        is_root.then(|| Self::stage(tools)).flatten()
    }

    fn session(tools: &[&str]) -> Option<Session> {
        let missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
        if let Some(tool) = tools.iter().find(missing) {
            eprintln!("SKIPPED: {tool} is missing");
            return None;
        }
        Some(Session::new().directory("out").directory("later").directory("root"))
    }

    fn staged(session: Session, arguments: &[&str]) -> Self {
        // Lists of dependencies need cargo, and are the same for every package.
        for file in ["third-party-licences", "haul.cdx.json"] {
            session.write(format!("stage/share/doc/haul/{file}"), file);
        }
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let packages = Self { session, scripts };
        packages.script("stage", arguments);
        packages
    }

    /// Runs a script of `packaging`; returns what it prints.
    fn script(&self, name: &str, arguments: &[&str]) -> String {
        let output = Command::new(self.scripts.join(name))
            .args(arguments)
            .current_dir(self.session.path(""))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .env("HAUL_XZ_LEVEL", "0")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "packaging/{name}: {text}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// The files below `root`, without those of the package database.
    fn installed(&self) -> Vec<String> {
        let all = self.session.tool("find root -type f -not -path root/var/lib/*");
        let mut files: Vec<_> = all.lines().map(str::to_owned).collect();
        files.sort();
        files
    }

    /// Asserts that the program, its pages and completions are below `prefix`, and that the program runs.
    #[track_caller]
    fn are_usable(&self, prefix: &str, zsh: &str, page: &str) {
        let installed = self.installed();
        for file in [
            "bin/haul",
            &format!("share/man/man1/haul{page}"),
            &format!("share/man/man1/haul-cp{page}"),
            &format!("share/man/man1/haul-serve-sftp{page}"),
            "share/bash-completion/completions/haul",
            &format!("share/zsh/{zsh}/_haul"),
            "share/fish/vendor_completions.d/haul.fish",
            "share/doc/haul/README.md",
            "share/doc/haul/docs/getting-started.md",
        ] {
            let file = format!("{prefix}/{file}");
            assert!(installed.contains(&file), "{file} is not among {installed:#?}");
        }
        let text = self.session.tool(&format!("{prefix}/bin/haul --version"));
        assert_eq!(text, concat!("haul ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

#[test]
fn a_debian_package_is_installed_upgraded_and_removed() {
    let Some(packages) = Packages::to_install(&["dpkg-deb", "readelf", "strip"]) else { return };
    let session = &packages.session;
    let first = packages.script("deb", &["stage", "1.0.0", "all", "out"]);
    let second = packages.script("deb", &["stage", "1.1.0", "all", "later"]);
    assert_eq!(first, "out/haul_1.0.0-1_all.deb");
    let fields = session.tool(&format!("dpkg-deb --field {first}"));
    assert!(fields.contains("\nDepends: libc6 (>= 2."), "{fields}");
    session.tool("mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates");
    session.write("root/var/lib/dpkg/status", "");
    let root = session.path("root");
    // The dependencies are not installed in this directory.
    let dpkg = format!("dpkg --root={} --force-depends", root.display());
    session.tool(&format!("{dpkg} --install {first}"));
    packages.are_usable("root/usr", "vendor-completions", ".1.gz");
    assert!(session.has("root/usr/share/doc/haul/copyright"));
    assert_eq!(session.tool("readlink root/usr/sbin/mount.haul"), "../bin/haul\n");
    session.tool(&format!("{dpkg} --install {second}"));
    packages.are_usable("root/usr", "vendor-completions", ".1.gz");
    let version = session.tool("dpkg-query --admindir=root/var/lib/dpkg -W haul");
    assert_eq!(version, "haul\t1.1.0-1\n");
    session.tool(&format!("{dpkg} --purge haul"));
    assert_eq!(packages.installed(), Vec::<String>::new());
    assert!(!session.has("root/usr/sbin/mount.haul"));
}

#[test]
fn an_rpm_package_is_installed_upgraded_and_removed() {
    let Some(packages) = Packages::to_install(&["rpmbuild", "rpm", "strip"]) else { return };
    let session = &packages.session;
    let architecture = std::env::consts::ARCH;
    let first = packages.script("rpm", &["stage", "1.0.0", architecture, "out"]);
    let second = packages.script("rpm", &["stage", "1.1.0", architecture, "later"]);
    // Debian's rpm requires an option that confirms its use.
    let force = session.tool("rpm --help").contains("--force-debian");
    let force = if force { " --force-debian" } else { "" };
    let rpm = format!(
        "rpm --root {} --dbpath /var/lib/rpm --nodeps{force}",
        session.path("root").display()
    );
    session.tool(&format!("{rpm} --install {first}"));
    packages.are_usable("root/usr", "site-functions", ".1.gz");
    assert_eq!(session.tool("readlink root/usr/sbin/mount.haul"), "../bin/haul\n");
    session.tool(&format!("{rpm} --upgrade {second}"));
    packages.are_usable("root/usr", "site-functions", ".1.gz");
    session.tool(&format!("{rpm} --erase haul"));
    assert_eq!(packages.installed(), Vec::<String>::new());
    assert!(!session.has("root/usr/sbin/mount.haul"));
    assert!(!session.has("root/usr/share/zsh"));
}

/// The tarball is unpacked into /usr/local, as README describes. A wheel has the same files.
#[test]
fn a_tarball_and_a_wheel_have_the_program_and_its_pages() {
    let Some(packages) = Packages::stage(&["xz", "python3", "strip"]) else { return };
    let session = &packages.session;
    let tarball = packages.script("tarball", &["stage", "1.0.0", "x", "out"]);
    assert_eq!(tarball, "out/haul-1.0.0-x.tar.xz");
    session.tool("mkdir -p root/usr/local");
    session.tool(&format!("tar -xf {tarball} -C root/usr/local --strip-components=1"));
    packages.are_usable("root/usr/local", "site-functions", ".1");
    let wheel = packages.script("wheel", &["stage", "1.0.0", "manylinux_2_17_x86_64", "out"]);
    let listed = session.tool(&format!("python3 -m zipfile -l {wheel}"));
    for file in ["data/scripts/haul", "data/data/share/man/man1/haul-cp.1", "licenses/LICENSE-MIT"]
    {
        assert!(listed.contains(file), "{file} is not in {listed}");
    }
}

/// The same content packed later, in another directory and with another umask, is the same package.
#[test]
fn packages_are_reproducible() {
    let tools = ["dpkg-deb", "rpmbuild", "readelf", "xz", "python3"];
    let Some(session) = Packages::session(&tools) else { return };
    // A small program instead of haul saves time.
    let arguments = ["/bin/true", "stage", env!("CARGO_BIN_EXE_haul")];
    let packages = Packages::staged(session, &arguments);
    let session = &packages.session;
    session.tool("cp -R stage other");
    session.tool("chmod -R g+w,o-rwx other");
    session.tool("find other -exec touch {} +");
    let architecture = std::env::consts::ARCH;
    for (stage, out) in [("stage", "out"), ("other", "later")] {
        packages.script("deb", &[stage, "1.0.0", "all", out]);
        packages.script("rpm", &[stage, "1.0.0", architecture, out]);
        packages.script("tarball", &[stage, "1.0.0", "x", out]);
        packages.script("wheel", &[stage, "1.0.0", "x", out]);
    }
    session.tool("diff -r out later");
    assert_eq!(session.tool("ls out").lines().count(), 4);
}
