//! `haul verify`: manifests of several formats, and files that differ from them.

use crate::dav;
use crate::session::Session;

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn session() -> Session {
    Session::new().file("d/a", "abc").file("d/SHA256SUMS", format!("{ABC}  a\n"))
}

#[test]
fn verify_exits_with_status_0_if_all_files_match() {
    let session = session();
    let ran = session.haul("verify d").status(0).stderr("");
    assert!(ran.out().starts_with("1 file as listed; read 3 B in "), "{}", ran.out());
    session.haul("verify -q d/SHA256SUMS").status(0).stdout("").stderr("");
    session.haul("verify -v d").status(0).stdout_has("matched a\n");
}

#[test]
fn every_difference_is_an_error_of_its_own() {
    let session = session();
    session.write("d/a", "abd");
    session.write("d/more", "");
    session.write("d/SHA256SUMS", format!("{ABC}  a\n{ABC}  none\nrubbish\n"));
    let ran = session.haul("verify --strict d").status(1);
    let err = ran.err();
    let mut lines: Vec<_> = err.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "haul: [ROOT]/d/SHA256SUMS: cannot use manifest (line 3 is not a digest and a name)",
            "haul: [ROOT]/d/a: cannot verify (its sha256 is \
             a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9, and should be \
             ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad)",
            "haul: [ROOT]/d/more: cannot verify (the manifest does not list it)",
            "haul: [ROOT]/d/none: cannot verify (listed in the manifest, but missing)",
        ]
    );
    ran.stdout_has(
        "0 files as listed; 1 mismatched; 1 missing; 1 not listed; 1 malformed in the manifest; ",
    );
}

#[test]
fn a_manifest_of_any_name_covers_its_own_directory() {
    let session = Session::new().file("d/a", "abc").file("d/list", format!("{ABC} *a\n"));
    let summary = session.haul("verify --json d/list").status(0).summary();
    assert_eq!((summary["matched"].as_u64(), summary["failed"].as_u64()), (Some(1), Some(0)));
}

#[test]
fn without_a_manifest_there_is_nothing_to_verify() {
    Session::new()
        .directory("d")
        .haul("verify d")
        .status(1)
        .stderr("haul: [ROOT]/d: cannot verify (no SHA256SUMS or B3SUMS in it)\n");
}

#[test]
fn manifests_of_openssl_of_the_bsds_and_signed_ones_are_checked() {
    for manifest in [
        format!("SHA2-256(a)= {ABC}\n"),
        format!("SHA256(a)= {ABC}\n"),
        format!("sha256 (a) = {ABC}\r\n"),
        format!("TIMESTAMP = 1700000000\nSHA256 (a) = {ABC}\nSIZE (a) = 3\nMD5 (a) = 00\n"),
        format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# a: 3 bytes\nSHA256 (a) = {ABC}\n\
             -----BEGIN PGP SIGNATURE-----\n\niQ=\n-----END PGP SIGNATURE-----\n"
        ),
    ] {
        let session = session();
        session.write("d/m", &manifest);
        session.haul("verify d/m").status(0).stdout_has("1 file as listed; ").stderr("");
        session.write("d/a", "abd");
        session.haul("verify d/m").status(1).stdout_has("1 mismatched");
    }
}

#[test]
fn a_manifest_without_a_usable_digest_is_a_failure() {
    for manifest in ["", "# nothing\n", "MD5 (a) = 00\n", "SIZE (a) = 3\n"] {
        let session = session();
        session.write("d/m", manifest);
        session.haul("verify d/m").status(1).stderr(
            "haul: [ROOT]/d/m: cannot use manifest (it lists no file with a SHA-256 or BLAKE3 digest)\n",
        );
        let summary = session.haul("verify --json d/m").status(1).summary();
        assert_eq!(summary["failed"].as_u64(), Some(1));
    }
    let session = session();
    session.write("d/m", format!("{ABC}  a\n-----BEGIN PGP SIGNATURE-----\n{ABC}  b\n"));
    session
        .haul("verify d/m")
        .status(1)
        .stderr_has("line 2 begins a PGP signature that does not end");
}

/// Formerly, the manifest itself was stored as a folder of parts, which nothing could read.
#[test]
fn the_manifest_of_split_files_is_one_file() {
    let session = Session::new().file("src/big", vec![7; 2500]).file("src/sub/small", "s");
    for n in 0..20 {
        session.write(format!("src/f{n}"), "x");
    }
    for dst in ["dst", "dst"] {
        session.haul(&format!("cp -q --split 1000 --manifest src/ {dst}")).status(0).stderr("");
        assert!(session.path("dst/SHA256SUMS").is_file() && session.path("dst/big/02").is_file());
        assert_eq!(session.read("dst/SHA256SUMS").lines().count(), 22);
    }
    session.haul("verify --strict --join dst").status(0);
    session.haul("cp -q --split 1000 --manifest=../sums src/ dst").status(0);
    assert_eq!(session.read("sums").lines().count(), 22);
    session.write("dst/big/01", vec![8; 1000]);
    session.haul("verify --join dst").status(1).stderr_has("big");
}

/// Formerly, a local file of that name was written below DEST.
#[test]
fn a_manifest_may_be_on_a_server() {
    let session = Session::new().file("src/a", "a").file("src/b", "b");
    let server = dav::haul(&session);
    let url = &server.url;
    session.haul(&format!("cp -q --manifest={url}sums/own src/ dst")).status(0);
    assert_eq!(session.read("far/sums/own").lines().count(), 2);
    assert_eq!(session.haul("ls dst").out(), "a\nb\n");
    // In DEST, it lists paths relative to its own directory, and is not removed.
    for _ in 0..2 {
        let line = format!("sync -q --delete --manifest={url}to/own src/ {url}to");
        session.haul(&line).status(0).stderr("");
        assert_eq!(session.haul("ls far/to").out(), "a\nb\nown\n");
        session.haul(&format!("verify --strict {url}to/own")).status(0);
    }
    session.haul(&format!("cp --manifest={url}to/ src/ dst")).status(1).stderr_has("directory");
    session.haul("cp --manifest=ftp:///x src/ dst").status(2);
}
