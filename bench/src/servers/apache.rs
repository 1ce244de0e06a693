//! Apache's httpd with mod_dav on the file system, with or without TLS.

use std::fs;
use std::io;
use std::path::Path;

use super::recipe::{Recipe, Site, program};
use super::{clients, tls};

const PORT: u16 = 8081;
const TLS_PORT: u16 = 8444;
/// Where Debian's package puts modules.
const MODULES: &str = "/usr/lib/apache2/modules";

pub(super) fn recipe(site: Site<'_>, with_tls: bool) -> io::Result<Recipe> {
    let apache = program("apache2", "apache2")?;
    let (private, root, host) = (site.private.display(), site.root.display(), site.address);
    let (port, mut cacert, mut keys) =
        (if with_tls { TLS_PORT } else { PORT }, String::new(), String::new());
    // Some modules may be built in and have no file.
    let mut modules = String::new();
    for (name, file) in [
        ("mpm_event", "mpm_event"),
        ("authz_core", "authz_core"),
        ("dir", "dir"),
        ("autoindex", "autoindex"),
        ("mime", "mime"),
        ("dav", "dav"),
        ("dav_fs", "dav_fs"),
        ("ssl", "ssl"),
    ] {
        let path = format!("{MODULES}/mod_{file}.so");
        if (name != "ssl" || with_tls) && Path::new(&path).exists() {
            modules += &format!("LoadModule {name}_module {path}\n");
        }
    }
    if with_tls {
        let files = tls::certificate(site)?;
        cacert = files.authority.display().to_string();
        let (certificate, key) = (files.certificate.display(), files.key.display());
        keys = format!(
            "SSLEngine on\nSSLCertificateFile {certificate}\nSSLCertificateKeyFile {key}\n"
        );
    }
    let locks = site.private.join("dav");
    fs::create_dir_all(&locks)?;
    // Apache writes the lock database after it has changed to its own user.
    std::os::unix::fs::chown(&locks, Some(user_id("www-data")?), None)?;
    let configuration = site.private.join("apache.conf");
    fs::write(
        &configuration,
        format!(
            "{modules}ServerRoot {private}\nServerName {host}\nListen {host}:{port}\n\
             PidFile {private}/apache.pid\nDefaultRuntimeDir {private}\nErrorLog {private}/error.log\n\
             User www-data\nGroup www-data\nTypesConfig /dev/null\nDocumentRoot {root}\n\
             MaxKeepAliveRequests 0\nLimitRequestBody 0\nDavLockDB {private}/dav/lock\n\
             ThreadsPerChild 50\nServerLimit 8\nMaxRequestWorkers 400\n{keys}\
             <Directory {root}>\nRequire all granted\nOptions Indexes\nDav On\n\
             AllowOverride None\n</Directory>\n"
        ),
    )?;
    let scheme = if with_tls { "https" } else { "http" };
    let settings = format!("type = webdav\nurl = {scheme}://{host}:{port}/\nvendor = other\n");
    let rclone = clients::rclone_config(site.private, &settings)?;
    let mut command = site.namespace.command(apache);
    command.args(["-D", "FOREGROUND", "-f"]).arg(&configuration);
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        variables.push(("RCLONE_CA_CERT", cacert));
    }
    Ok(Recipe { command, port, variables, scheme, prefix: String::new() })
}

/// The ID of a user of this machine.
fn user_id(name: &str) -> io::Result<u32> {
    fs::read_to_string("/etc/passwd")?
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
        })
        .ok_or_else(|| io::Error::other(format!("there is no user {name} on this machine")))
}
