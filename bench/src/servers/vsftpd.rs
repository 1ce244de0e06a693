//! vsftpd: anonymous access, uploads to `up`, with or without TLS (`AUTH TLS`).

use std::fs;
use std::io;

use super::recipe::{Recipe, Site, program};
use super::{clients, tls};
use crate::command::must_run;

const PORT: u16 = 2121;
const TLS_PORT: u16 = 2122;

pub(super) fn recipe(site: Site<'_>, with_tls: bool) -> io::Result<Recipe> {
    let vsftpd = program("vsftpd", "vsftpd")?;
    let (private, root, host) = (site.private.display(), site.root.display(), site.address);
    let jail = site.private.join("empty");
    fs::create_dir_all(&jail)?;
    let (port, mut cacert, mut keys) =
        (if with_tls { TLS_PORT } else { PORT }, String::new(), String::new());
    if with_tls {
        let files = tls::certificate(site)?;
        cacert = files.authority.display().to_string();
        let (certificate, key) = (files.certificate.display(), files.key.display());
        // `require_ssl_reuse` keeps its default: vsftpd refuses a data connection that does not resume the TLS session
        // of its control connection.
        keys = format!(
            "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=YES\n\
             force_anon_data_ssl=YES\nssl_ciphers=HIGH\nrsa_cert_file={certificate}\n\
             rsa_private_key_file={key}\n"
        );
    }
    let configuration = site.private.join("vsftpd.conf");
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
    // rclone 1.60 cannot resume a TLS 1.3 session as vsftpd requires.
    let settings = format!(
        "type = ftp\nhost = {host}\nport = {port}\nuser = anonymous\npass = {}\n\
         explicit_tls = {with_tls}\ndisable_tls13 = {with_tls}\n",
        obscured("anonymous")?
    );
    let rclone = clients::rclone_config(site.private, &settings)?;
    let mut command = site.namespace.command(vsftpd);
    command.arg(&configuration);
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        // rclone ignores RCLONE_CA_CERT for FTP; Go's TLS library reads this variable.
        variables.push(("SSL_CERT_FILE", cacert));
    }
    // The scheme is `ftp` even with TLS: clients other than haul request TLS by an option.
    Ok(Recipe { command, port, variables, scheme: "ftp", prefix: String::new() })
}

/// A password in the obscured form of rclone's configuration; empty if rclone is not installed.
fn obscured(password: &str) -> io::Result<String> {
    let Ok(rclone) = program("rclone", "rclone") else { return Ok(String::new()) };
    let printed = must_run(std::process::Command::new(rclone).args(["obscure", password]))?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}
