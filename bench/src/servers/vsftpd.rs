//! vsftpd: anonymous, reading below its root and writing below `up`.

use std::fs;
use std::io;

use super::{Place, Recipe, clients, program};
use crate::command::must_run;

const PORT: u16 = 2121;

pub(super) fn recipe(place: Place<'_>) -> io::Result<Recipe> {
    let vsftpd = program("vsftpd", "vsftpd")?;
    let (private, root, host) = (place.private.display(), place.root.display(), place.address);
    let jail = place.private.join("empty");
    fs::create_dir_all(&jail)?;
    let configuration = place.private.join("vsftpd.conf");
    fs::write(
        &configuration,
        format!(
            "background=NO\nlisten=YES\nlisten_address={host}\nlisten_port={PORT}\n\
             anonymous_enable=YES\nno_anon_password=YES\nanon_root={root}\nlocal_enable=NO\n\
             write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
             anon_other_write_enable=YES\nanon_umask=022\nsecure_chroot_dir={private}/empty\n\
             allow_writeable_chroot=YES\npasv_enable=YES\nconnect_from_port_20=NO\n\
             xferlog_enable=NO\nseccomp_sandbox=NO\nmax_per_ip=0\n"
        ),
    )?;
    let settings = format!(
        "type = ftp\nhost = {host}\nport = {PORT}\nuser = anonymous\npass = {}\n",
        obscured("anonymous")?
    );
    let rclone = clients::rclone_config(place.private, &settings)?;
    let mut command = place.namespace.command(vsftpd);
    command.arg(&configuration);
    Ok(Recipe {
        command,
        port: PORT,
        variables: vec![("RCLONE_CONFIG", rclone), ("CACERT", String::new())],
        scheme: "ftp",
        prefix: String::new(),
    })
}

/// A password as rclone wants it in its configuration; empty where there is no rclone to read it.
fn obscured(password: &str) -> io::Result<String> {
    let Ok(rclone) = program("rclone", "rclone") else { return Ok(String::new()) };
    let printed = must_run(std::process::Command::new(rclone).args(["obscure", password]))?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}
