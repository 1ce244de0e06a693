//! The servers that tools connect to, each with its own configuration and port, in a network namespace without other
//! servers.
//!
//! A server serves the directory `root`: `root/data` contains the files to download, uploads go to `root/up`.

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
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use recipe::Recipe;
pub(crate) use recipe::Site;
use rustix::process::{Pid, Signal, kill_process};

use crate::link::Namespace;
use crate::scenario::Protocol;

/// How long a server may take to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server, and the variables that tools need to reach it. Dropping it stops the server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    /// Variables for the commands of tools.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Prefix of paths below `root` as clients see them: `root` itself for OpenSSH, otherwise empty.
    prefix: String,
    log: PathBuf,
    /// The bridge through which it is reached.
    bridge: Option<Box<Self>>,
}

impl Server {
    /// Starts the server of `protocol` and waits until it accepts connections.
    pub(crate) fn start(protocol: Protocol, site: Site<'_>) -> io::Result<Self> {
        fs::create_dir_all(site.root.join("up"))?;
        // Apache and vsftpd write as their own users, not as root.
        fs::set_permissions(site.root.join("up"), fs::Permissions::from_mode(0o777))?;
        fs::create_dir_all(site.private)?;
        let mut bridge = None;
        let recipe = match protocol {
            Protocol::Local => return Err(io::Error::other("local copies have no server")),
            Protocol::Sftp => sshd::recipe(site)?,
            Protocol::Http | Protocol::DavNginx => nginx::recipe(site, nginx::Variant::Plain)?,
            Protocol::HttpLimited => nginx::recipe(site, nginx::Variant::Limited)?,
            Protocol::Https => nginx::recipe(site, nginx::Variant::Tls)?,
            Protocol::Dav => apache::recipe(site, false)?,
            Protocol::Davs => apache::recipe(site, true)?,
            Protocol::Ftp => vsftpd::recipe(site, false)?,
            Protocol::Ftps => vsftpd::recipe(site, true)?,
            Protocol::HaulSftp => haul::sftp(site)?,
            Protocol::HaulDav => haul::dav(site, false)?,
            Protocol::HaulDavs => haul::dav(site, true)?,
            Protocol::Peer => haul::share(site),
            Protocol::PeerBlackHole => haul::share_with_black_hole(site),
            Protocol::PeerBridge => {
                let mut started = Self::launch(haul::bridge(site), site, "bridge.log")?;
                started.wait_until_listening(site.hub, haul::BRIDGE_PORT)?;
                let name = started.wait_for("name", haul::bridge_name)?;
                bridge = Some(Box::new(started));
                haul::share_bridged(site, &name)
            }
        };
        let port = recipe.port;
        let mut server = Self::launch(recipe, site, "server.log")?;
        server.bridge = bridge;
        if server.bridge.is_none() {
            server.wait_until_listening((site.namespace, site.address), port)?;
        }
        if matches!(protocol, Protocol::Peer | Protocol::PeerBlackHole | Protocol::PeerBridge) {
            let ticket = server.wait_for("ticket", haul::ticket)?;
            server.variables.push(("TICKET", ticket));
        }
        Ok(server)
    }

    /// Starts a process, whose output goes to the file `log`.
    fn launch(mut recipe: Recipe, site: Site<'_>, log: &str) -> io::Result<Self> {
        let log = site.private.join(log);
        let output = fs::File::create(&log)?;
        recipe.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = recipe.command.spawn().map_err(|error| {
            let program = recipe.command.get_program().to_string_lossy().into_owned();
            io::Error::other(format!("starting {program}: {error}"))
        })?;
        let (host, port) = (site.address.to_string(), recipe.port);
        let mut variables = recipe.variables;
        variables.push(("SERVER_URL", format!("{}://{host}:{port}", recipe.scheme)));
        variables.push(("HOST", host));
        variables.push(("PORT", port.to_string()));
        Ok(Self { process, variables, prefix: recipe.prefix, log, bridge: None })
    }

    /// The process ids of the server and of its bridge.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let bridge = self.bridge.as_ref().map(|bridge| bridge.process.id());
        std::iter::once(self.process.id()).chain(bridge)
    }

    /// A path relative to `root`, as clients see it.
    pub(crate) fn remote_path(&self, path: &str) -> String {
        format!("{}/{path}", self.prefix)
    }

    fn wait_until_listening(
        &mut self,
        (namespace, address): (&Namespace, Ipv4Addr),
        port: u16,
    ) -> io::Result<()> {
        let address = SocketAddr::from((address, port));
        let start = Instant::now();
        loop {
            // From the server's own namespace, so that the attempt does not count as traffic on the link.
            let connected =
                namespace.within(|| TcpStream::connect(address)).map_err(io::Error::other)?;
            if connected.is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let how = ended.map_or("does not listen".to_owned(), |status| status.to_string());
                return Err(io::Error::other(format!("the server: {how}\n{}", log.trim())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a value that `haul share` or `haul bridge` prints once it is ready.
    fn wait_for(&self, what: &str, find: fn(&str) -> Option<&str>) -> io::Result<String> {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(&self.log)?;
            if let Some(found) = find(&log) {
                return Ok(found.to_owned());
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("haul prints no {what}\n{log}")));
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
        // It did not end after SIGTERM. If SIGKILL fails too, the guard kills it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
