//! The haul under test as a server: `haul serve sftp`, `haul serve dav`, and `haul share`, also through `haul bridge`.
//! Clients see the served directory as `/`.

use std::io;
use std::process::Command;

use super::recipe::{Recipe, Site};
use super::{clients, keys, tls};

const SFTP_PORT: u16 = 2223;
const DAV_PORT: u16 = 8082;
const DAV_TLS_PORT: u16 = 8445;
const SHARE_PORT: u16 = 4180;
pub(super) const BRIDGE_PORT: u16 = 4181;

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

pub(super) fn share(site: Site<'_>) -> Recipe {
    peer(listening(site, &["share", "--writable"], SHARE_PORT), SHARE_PORT)
}

/// A share whose ticket also has an IPv6 address that does not respond, not even with an ICMP error.
pub(super) fn share_with_black_hole(site: Site<'_>) -> Recipe {
    let mut recipe = share(site);
    let network = u16::from(site.address.octets()[2]);
    recipe.command.args(["--address", &format!("[fd99:{network:x}::dead]:{SHARE_PORT}")]);
    recipe
}

/// A bridge without a token.
pub(super) fn bridge(site: Site<'_>) -> Recipe {
    let (namespace, address) = site.hub;
    let mut command = isolated(namespace.command(site.haul), site);
    command.args(["bridge", "--open", "--listen", &format!("{address}:{BRIDGE_PORT}")]);
    peer(command, BRIDGE_PORT)
}

/// A share that is reached only through the bridge of this name.
pub(super) fn share_bridged(site: Site<'_>, bridge: &str) -> Recipe {
    let mut command = isolated(site.namespace.command(site.haul), site);
    command.args(["share", "--writable"]).arg(site.root);
    command.args(["--bridge", bridge, "--bridge-only"]);
    peer(command, BRIDGE_PORT)
}

fn peer(command: Command, port: u16) -> Recipe {
    Recipe { command, port, variables: Vec::new(), scheme: "peer", prefix: String::new() }
}

/// The name of the bridge in the output of `haul bridge`.
pub(super) fn bridge_name(output: &str) -> Option<&str> {
    let complete = &output[..output.rfind('\n')?];
    complete.lines().find_map(|line| line.strip_prefix("bridge "))
}

/// The ticket in the output of `haul share`.
pub(super) fn ticket(output: &str) -> Option<&str> {
    // A last line without a line break may be incomplete.
    let complete = &output[..output.rfind('\n')?];
    complete.split_whitespace().find(|word| word.starts_with("haul1"))
}

fn serve(site: Site<'_>, protocol: &str, port: u16) -> Command {
    listening(site, &["serve", protocol], port)
}

/// A command that serves the root directory.
fn listening(site: Site<'_>, words: &[&str], port: u16) -> Command {
    let mut command = isolated(site.namespace.command(site.haul), site);
    command.args(words).arg(site.root);
    command.args(["--listen", &format!("{}:{port}", site.address)]);
    command
}

/// A command without the configuration and state of the user who runs the benchmark.
fn isolated(mut command: Command, site: Site<'_>) -> Command {
    command.env("HOME", site.private).env("HAUL_LAN", "no").env("HAUL_PORT_MAPPING", "no");
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}
