//! OpenSSH's sshd with sftp-server, a host key and a user key of its own; root signs in by key.

use std::fs;
use std::io;

use super::keys;
use super::recipe::{Place, Recipe, program};

const PORT: u16 = 2222;

pub(super) fn recipe(place: Place<'_>) -> io::Result<Recipe> {
    let sshd = program("sshd", "openssh-server")?;
    // Debian's sshd does not start without it. `/run` is the benchmark's own, see `guard`.
    fs::create_dir_all("/run/sshd")?;
    let keys = keys::prepare(place, PORT, "unix")?;
    let (host, host_key, authorized) =
        (place.address, keys.host.display(), keys.authorized.display());
    let subsystem = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap_or("internal-sftp");
    // bash reads the user's ~/.bashrc when sshd starts it as the outermost shell, and that may take
    // longer than connecting. SHLVL says that it is not.
    let configuration = place.private.join("sshd_config");
    fs::write(
        &configuration,
        format!(
            "ListenAddress {host}\nPort {PORT}\nHostKey {host_key}\nPidFile none\n\
             AuthorizedKeysFile {authorized}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             MaxStartups 200\nMaxSessions 100\nUseDNS no\nPrintMotd no\n\
             SetEnv SHLVL=9\nSubsystem sftp {subsystem}\n"
        ),
    )?;
    // sshd starts itself anew for each connection and needs its absolute path for that.
    let mut command = place.namespace.command(sshd);
    command.args(["-D", "-e", "-f"]).arg(&configuration);
    Ok(Recipe {
        command,
        port: PORT,
        variables: keys.variables,
        scheme: "sftp",
        prefix: place.root.display().to_string(),
    })
}
