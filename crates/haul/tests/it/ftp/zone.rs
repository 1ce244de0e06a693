//! A server that is reached by an IPv6 address with a zone: all connections to it need the zone, and no
//! certificate has one. Runs in a network namespace of its own, whose loopback device has such an address.
//!
//! vsftpd listens on all addresses: with `listen_address6` it cannot bind here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::session::{Session, isolate};

const SCRIPT: &str = "\
ip link set lo up
ip address add fe80::1/64 dev lo nodad
/usr/sbin/vsftpd vsftpd.conf < /dev/null &
server=$!
trap 'kill $server' EXIT
until grep -q ' 0A ' /proc/net/tcp6; do kill -0 $server; sleep 0.05; done
for url in 'ftp://[fe80::1%25lo]:2121' 'ftps://[fe80::1%lo]:2121'; do
    $HAUL cp --cacert certificate.pem src \"$url/up/f\"
    $HAUL cp --cacert certificate.pem \"$url/up/f\" back
    cmp src back
    rm back
done
";

#[test]
fn an_address_with_a_zone_is_reached_by_all_connections() {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !root || !Path::new("/usr/sbin/vsftpd").exists() {
        eprintln!("skipped: vsftpd (Debian's package) and root are needed");
        return;
    }
    let session = Session::new().file("src", "content".repeat(500_000));
    let session = session.directory("root/up").directory("empty").directory("home");
    for (path, mode) in [("", 0o755), ("root", 0o755), ("root/up", 0o777), ("empty", 0o755)] {
        fs::set_permissions(session.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let certified = rcgen::generate_simple_self_signed(["fe80::1".to_owned()]).unwrap();
    session.write("certificate.pem", certified.cert.pem());
    session.write("key.pem", certified.signing_key.serialize_pem());
    let at = |path: &str| session.path(path).display().to_string();
    session.write(
        "vsftpd.conf",
        format!(
            "background=NO\nlisten=NO\nlisten_ipv6=YES\nlisten_port=2121\n\
             anonymous_enable=YES\nanon_root={}\nlocal_enable=NO\nwrite_enable=YES\n\
             anon_upload_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
             anon_world_readable_only=NO\nsecure_chroot_dir={}\nseccomp_sandbox=NO\n\
             connect_from_port_20=NO\nssl_enable=YES\nallow_anon_ssl=YES\nssl_ciphers=HIGH\n\
             rsa_cert_file={}\nrsa_private_key_file={}\n",
            at("root"),
            at("empty"),
            at("certificate.pem"),
            at("key.pem")
        ),
    );
    let mut command = Command::new("unshare");
    isolate(&mut command);
    command.args(["--net", "sh", "-ec", SCRIPT]).current_dir(session.path(""));
    command.env("HAUL", env!("CARGO_BIN_EXE_haul")).env("HOME", session.path("home"));
    command.env("TMPDIR", session.path(""));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
