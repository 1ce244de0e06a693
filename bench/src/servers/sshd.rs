//! OpenSSH's sshd with sftp-server, a host key and a user key of its own; root signs in by key.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::{Place, Recipe, clients, program};
use crate::command::must_run;

const PORT: u16 = 2222;

pub(super) fn recipe(place: Place<'_>) -> io::Result<Recipe> {
    let sshd = program("sshd", "openssh-server")?;
    let private = place.private;
    // Debian's sshd does not start without it. `/run` is the benchmark's own, see `guard`.
    fs::create_dir_all("/run/sshd")?;
    for key in ["host", "user"] {
        let path = private.join(key);
        if !path.exists() {
            must_run(
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path),
            )?;
        }
    }
    let read = |name: &str| fs::read_to_string(private.join(name));
    fs::write(private.join("authorized_keys"), read("user.pub")?)?;
    let host = place.address;
    let directory = private.display();
    fs::write(private.join("known_hosts"), format!("[{host}]:{PORT} {}", read("host.pub")?))?;
    let subsystem = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap_or("internal-sftp");
    // bash reads the user's ~/.bashrc when sshd starts it as the outermost shell, and that may take
    // longer than connecting. SHLVL says that it is not.
    let configuration = private.join("sshd_config");
    fs::write(
        &configuration,
        format!(
            "ListenAddress {host}\nPort {PORT}\nHostKey {directory}/host\nPidFile none\n\
             AuthorizedKeysFile {directory}/authorized_keys\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             MaxStartups 200\nMaxSessions 100\nUseDNS no\nPrintMotd no\n\
             SetEnv SHLVL=9\nSubsystem sftp {subsystem}\n"
        ),
    )?;
    let ssh_config = private.join("ssh_config");
    fs::write(
        &ssh_config,
        format!(
            "Host bench\n  HostName {host}\n  Port {PORT}\n  User root\n  \
             IdentityFile {directory}/user\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {directory}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking yes\n  BatchMode yes\n"
        ),
    )?;
    fs::set_permissions(private.join("user"), fs::Permissions::from_mode(0o600))?;
    let settings = format!(
        "type = sftp\nhost = {host}\nport = {PORT}\nuser = root\nkey_file = {directory}/user\n\
         known_hosts_file = {directory}/known_hosts\nshell_type = unix\n"
    );
    let rclone = clients::rclone_config(private, &settings)?;
    // sshd starts itself anew for each connection and needs its absolute path for that.
    let mut command = place.namespace.command(sshd);
    command.args(["-D", "-e", "-f"]).arg(&configuration);
    Ok(Recipe {
        command,
        port: PORT,
        variables: vec![
            ("SSH_CONFIG", ssh_config.display().to_string()),
            ("KEY", format!("{directory}/user")),
            ("KNOWN_HOSTS", format!("{directory}/known_hosts")),
            ("RCLONE_CONFIG", rclone),
        ],
        scheme: "sftp",
        prefix: place.root.display().to_string(),
    })
}
