//! SSH keys of a server and its user, and the client configurations that use them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::clients;
use super::recipe::Site;
use crate::command::must_run;

/// Key files of a server, and variables for client commands.
pub(super) struct Keys {
    /// The private host key.
    pub(super) host: PathBuf,
    /// The `authorized_keys` file.
    pub(super) authorized: PathBuf,
    pub(super) variables: Vec<(&'static str, String)>,
}

/// Creates keys and client configurations for a server on `port` where root signs in. `shell` is rclone's
/// `shell_type`.
pub(super) fn prepare(site: Site<'_>, port: u16, shell: &str) -> io::Result<Keys> {
    let private = site.private;
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
    let host = site.address;
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
