//! OpenSSH's sshd with sftp-server and its own host key. root signs in with a key made for the benchmark.

use std::fs;
use std::io;

use super::keys;
use super::recipe::{Recipe, Site, program};

const PORT: u16 = 2222;

pub(super) fn recipe(site: Site<'_>) -> io::Result<Recipe> {
    let sshd = program("sshd", "openssh-server")?;
    // Debian's sshd does not start without this directory. `/run` is private to the benchmark, see `guard`.
    fs::create_dir_all("/run/sshd")?;
    let keys = keys::prepare(site, PORT, "unix")?;
    let (host, host_key, authorized) =
        (site.address, keys.host.display(), keys.authorized.display());
    let subsystem = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap_or("internal-sftp");
    // When sshd starts bash as the outermost shell, bash reads the user's ~/.bashrc, which may take longer than
    // connecting. With SHLVL set it does not count as the outermost one.
    let configuration = site.private.join("sshd_config");
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
    // sshd executes itself again for each connection, so it must be started with its absolute path.
    let mut command = site.namespace.command(sshd);
    command.args(["-D", "-e", "-f"]).arg(&configuration);
    Ok(Recipe {
        command,
        port: PORT,
        variables: keys.variables,
        scheme: "sftp",
        prefix: site.root.display().to_string(),
    })
}
