//! The servers that tools talk to, each with a configuration of its own on a port of its own, in a
//! network namespace where nobody else listens.
//!
//! A server serves `root`: `root/data` holds what is downloaded, `root/up` takes uploads. It is
//! stopped by its process id.

mod apache;
mod clients;
mod haul;
mod keys;
mod nginx;
mod recipe;
mod sshd;
mod tls;
mod vsftpd;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub(crate) use recipe::Place;
use rustix::process::{Pid, Signal, kill_process};

use crate::scenario::Protocol;

/// How long a server may take to listen, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server, and what tools have to know of it.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    /// Variables for tools' commands.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// What stands before a path of `root` in the client's eyes: empty, or `root` itself for SFTP.
    prefix: String,
    log: PathBuf,
}

impl Server {
    /// Starts what speaks `protocol` and waits until it listens.
    pub(crate) fn start(protocol: Protocol, place: Place<'_>) -> io::Result<Self> {
        fs::create_dir_all(place.root.join("up"))?;
        // Apache and vsftpd write as users of their own.
        fs::set_permissions(place.root.join("up"), fs::Permissions::from_mode(0o777))?;
        fs::create_dir_all(place.private)?;
        let mut recipe = match protocol {
            Protocol::Local => return Err(io::Error::other("local copies have no server")),
            Protocol::Sftp => sshd::recipe(place)?,
            Protocol::Http | Protocol::DavNginx => nginx::recipe(place, nginx::Manner::Plain)?,
            Protocol::HttpLimited => nginx::recipe(place, nginx::Manner::Limited)?,
            Protocol::Https => nginx::recipe(place, nginx::Manner::Tls)?,
            Protocol::Dav => apache::recipe(place, false)?,
            Protocol::Davs => apache::recipe(place, true)?,
            Protocol::Ftp => vsftpd::recipe(place, false)?,
            Protocol::Ftps => vsftpd::recipe(place, true)?,
            Protocol::HaulSftp => haul::sftp(place)?,
            Protocol::HaulDav => haul::dav(place, false)?,
            Protocol::HaulDavs => haul::dav(place, true)?,
        };
        let log = place.private.join("server.log");
        let output = fs::File::create(&log)?;
        recipe.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = recipe.command.spawn().map_err(|error| {
            let program = recipe.command.get_program().to_string_lossy().into_owned();
            io::Error::other(format!("starting {program}: {error}"))
        })?;
        let (host, port) = (place.address.to_string(), recipe.port);
        let mut variables = recipe.variables;
        variables.push(("SERVER_URL", format!("{}://{host}:{port}", recipe.scheme)));
        variables.push(("HOST", host));
        variables.push(("PORT", port.to_string()));
        let mut server = Self { process, variables, prefix: recipe.prefix, log };
        server.wait_until_it_listens(place, port)?;
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// `path`, relative to the root, as clients name it.
    pub(crate) fn remote(&self, path: &str) -> String {
        format!("{}/{path}", self.prefix)
    }

    fn wait_until_it_listens(&mut self, place: Place<'_>, port: u16) -> io::Result<()> {
        let address = SocketAddr::from((place.address, port));
        let start = Instant::now();
        loop {
            // From its own namespace, so that the link counts nothing.
            let connected =
                place.namespace.within(|| TcpStream::connect(address)).map_err(io::Error::other)?;
            if connected.is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                let how = ended.map_or("does not listen".to_owned(), |status| status.to_string());
                return Err(io::Error::other(format!("the server: {how}\n{}", said.trim())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let terminate = Pid::from_raw(self.process.id().cast_signed())
            .map_or(Ok(()), |pid| kill_process(pid, Signal::TERM));
        let start = Instant::now();
        while terminate.is_ok() && start.elapsed() < PATIENCE {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // It did not listen to reason. Should this fail too, the guard takes it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
