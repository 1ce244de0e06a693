//! Keys of an SSH server and of who signs in there, and what clients read of both.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::clients;
use super::recipe::Place;
use crate::command::must_run;

/// Files of a server, and variables of clients.
pub(super) struct Keys {
    pub(super) host: PathBuf,
    pub(super) authorized: PathBuf,
    pub(super) variables: Vec<(&'static str, String)>,
}

/// Makes keys, and configurations for a server on `port` where root signs in. `shell` is what rclone
/// is told of the shell there.
pub(super) fn prepare(place: Place<'_>, port: u16, shell: &str) -> io::Result<Keys> {
    let private = place.private;
    let [host_key, user_key] = ["host", "user"].map(|name| private.join(name));
    for path in [&host_key, &user_key] {
        if !path.exists() {
            must_run(
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path),
            )?;
        }
    }
    let read = |name: &str| fs::read_to_string(private.join(name));
    let authorized = private.join("authorized_keys");
    fs::write(&authorized, read("user.pub")?)?;
    let host = place.address;
    let directory = private.display();
    fs::write(private.join("known_hosts"), format!("[{host}]:{port} {}", read("host.pub")?))?;
    let ssh_config = private.join("ssh_config");
    fs::write(
        &ssh_config,
        format!(
            "Host bench\n  HostName {host}\n  Port {port}\n  User root\n  \
             IdentityFile {directory}/user\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {directory}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking yes\n  BatchMode yes\n"
        ),
    )?;
    fs::set_permissions(&user_key, fs::Permissions::from_mode(0o600))?;
    let settings = format!(
        "type = sftp\nhost = {host}\nport = {port}\nuser = root\nkey_file = {directory}/user\n\
         known_hosts_file = {directory}/known_hosts\nshell_type = {shell}\n"
    );
    let rclone = clients::rclone_config(private, &settings)?;
    let variables = vec![
        ("SSH_CONFIG", ssh_config.display().to_string()),
        ("KEY", format!("{directory}/user")),
        ("KNOWN_HOSTS", format!("{directory}/known_hosts")),
        ("RCLONE_CONFIG", rclone),
    ];
    Ok(Keys { host: host_key, authorized, variables })
}
