//! The haul under test as a server: `haul serve sftp` and `haul serve dav`. Clients see the served directory as `/`.

use std::io;
use std::process::Command;

use super::recipe::{Recipe, Site};
use super::{clients, keys, tls};

const SFTP_PORT: u16 = 2223;
const DAV_PORT: u16 = 8082;
const DAV_TLS_PORT: u16 = 8445;

pub(super) fn sftp(site: Site<'_>) -> io::Result<Recipe> {
    // This server has no shell.
    let keys = keys::prepare(site, SFTP_PORT, "none")?;
    let mut command = serve(site, "sftp", SFTP_PORT);
    command.args(["--user", "root", "--authorized-keys"]).arg(&keys.authorized);
    command.arg("--host-key").arg(&keys.host);
    let (port, variables) = (SFTP_PORT, keys.variables);
    Ok(Recipe { command, port, variables, scheme: "sftp", prefix: String::new() })
}

pub(super) fn dav(site: Site<'_>, with_tls: bool) -> io::Result<Recipe> {
    let (port, scheme) = if with_tls { (DAV_TLS_PORT, "https") } else { (DAV_PORT, "http") };
    let mut command = serve(site, "dav", port);
    command.arg("--anonymous");
    let mut cacert = String::new();
    if with_tls {
        let files = tls::certificate(site)?;
        command.arg("--tls-cert").arg(&files.certificate).arg("--tls-key").arg(&files.key);
        cacert = files.authority.display().to_string();
    }
    let settings =
        format!("type = webdav\nurl = {scheme}://{}:{port}/\nvendor = other\n", site.address);
    let rclone = clients::rclone_config(site.private, &settings)?;
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        variables.push(("RCLONE_CA_CERT", cacert));
    }
    Ok(Recipe { command, port, variables, scheme, prefix: String::new() })
}

/// `haul serve` of the root directory, without the configuration and state of the user who runs the benchmark.
fn serve(site: Site<'_>, protocol: &str, port: u16) -> Command {
    let mut command = site.namespace.command(site.haul);
    command.args(["serve", protocol]).arg(site.root);
    command.args(["--listen", &format!("{}:{port}", site.address)]);
    command.env("HOME", site.private);
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}
