//! The haul that is measured, as a server: `haul serve sftp` and `haul serve dav`. Clients see what it
//! serves as `/`.

use std::io;
use std::process::Command;

use super::recipe::{Place, Recipe};
use super::{clients, keys, tls};

const SFTP_PORT: u16 = 2223;
const DAV_PORT: u16 = 8082;
const DAV_TLS_PORT: u16 = 8445;

pub(super) fn sftp(place: Place<'_>) -> io::Result<Recipe> {
    // Nobody gets a shell there.
    let keys = keys::prepare(place, SFTP_PORT, "none")?;
    let mut command = serve(place, "sftp", SFTP_PORT);
    command.args(["--user", "root", "--authorized-keys"]).arg(&keys.authorized);
    command.arg("--host-key").arg(&keys.host);
    let (port, variables) = (SFTP_PORT, keys.variables);
    Ok(Recipe { command, port, variables, scheme: "sftp", prefix: String::new() })
}

pub(super) fn dav(place: Place<'_>, with_tls: bool) -> io::Result<Recipe> {
    let (port, scheme) = if with_tls { (DAV_TLS_PORT, "https") } else { (DAV_PORT, "http") };
    let mut command = serve(place, "dav", port);
    command.arg("--anonymous");
    let mut cacert = String::new();
    if with_tls {
        let files = tls::certificate(place)?;
        command.arg("--tls-cert").arg(&files.certificate).arg("--tls-key").arg(&files.key);
        cacert = files.authority.display().to_string();
    }
    let settings =
        format!("type = webdav\nurl = {scheme}://{}:{port}/\nvendor = other\n", place.address);
    let rclone = clients::rclone_config(place.private, &settings)?;
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        variables.push(("RCLONE_CA_CERT", cacert));
    }
    Ok(Recipe { command, port, variables, scheme, prefix: String::new() })
}

/// `haul serve` of the root, with nothing of this user's own.
fn serve(place: Place<'_>, protocol: &str, port: u16) -> Command {
    let mut command = place.namespace.command(place.haul);
    command.args(["serve", protocol]).arg(place.root);
    command.args(["--listen", &format!("{}:{port}", place.address)]);
    command.env("HOME", place.private);
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}
