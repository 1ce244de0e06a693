//! vsftpd: anonymous, reading below its root and writing below `up`, with TLS (`AUTH TLS`) or without.

use std::fs;
use std::io;

use super::recipe::{Place, Recipe, program};
use super::{clients, tls};
use crate::command::must_run;

const PORT: u16 = 2121;
const TLS_PORT: u16 = 2122;

pub(super) fn recipe(place: Place<'_>, with_tls: bool) -> io::Result<Recipe> {
    let vsftpd = program("vsftpd", "vsftpd")?;
    let (private, root, host) = (place.private.display(), place.root.display(), place.address);
    let jail = place.private.join("empty");
    fs::create_dir_all(&jail)?;
    let (port, mut cacert, mut keys) =
        (if with_tls { TLS_PORT } else { PORT }, String::new(), String::new());
    if with_tls {
        let files = tls::certificate(place)?;
        cacert = files.authority.display().to_string();
        let (certificate, key) = (files.certificate.display(), files.key.display());
        // As it is without being told, vsftpd refuses a data connection that does not continue the TLS
        // session of its control connection.
        keys = format!(
            "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=YES\n\
             force_anon_data_ssl=YES\nssl_ciphers=HIGH\nrsa_cert_file={certificate}\n\
             rsa_private_key_file={key}\n"
        );
    }
    let configuration = place.private.join("vsftpd.conf");
    fs::write(
        &configuration,
        format!(
            "background=NO\nlisten=YES\nlisten_address={host}\nlisten_port={port}\n\
             anonymous_enable=YES\nno_anon_password=YES\nanon_root={root}\nlocal_enable=NO\n\
             write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
             anon_other_write_enable=YES\nanon_umask=022\nsecure_chroot_dir={private}/empty\n\
             allow_writeable_chroot=YES\npasv_enable=YES\nconnect_from_port_20=NO\n\
             xferlog_enable=NO\nseccomp_sandbox=NO\nmax_per_ip=0\n{keys}"
        ),
    )?;
    // rclone 1.60 cannot continue a session of TLS 1.3 as vsftpd wants it.
    let settings = format!(
        "type = ftp\nhost = {host}\nport = {port}\nuser = anonymous\npass = {}\n\
         explicit_tls = {with_tls}\ndisable_tls13 = {with_tls}\n",
        obscured("anonymous")?
    );
    let rclone = clients::rclone_config(place.private, &settings)?;
    let mut command = place.namespace.command(vsftpd);
    command.arg(&configuration);
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        // RCLONE_CA_CERT is not for FTP; this is read by the library.
        variables.push(("SSL_CERT_FILE", cacert));
    }
    // Clients other than haul say by an option that they want TLS.
    Ok(Recipe { command, port, variables, scheme: "ftp", prefix: String::new() })
}

/// A password as rclone wants it in its configuration; empty where there is no rclone to read it.
fn obscured(password: &str) -> io::Result<String> {
    let Ok(rclone) = program("rclone", "rclone") else { return Ok(String::new()) };
    let printed = must_run(std::process::Command::new(rclone).args(["obscure", password]))?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}
