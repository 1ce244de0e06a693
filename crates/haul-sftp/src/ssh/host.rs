//! A host with its resolved configuration, and connections to it.
//!
//! ```text
//! dial / jump / command ─┐
//! known hosts ───────────┼→ open (keys exchanged, host key judged) → authenticate → SshConnection
//! agent and key files ───┴────────────────────────────────────────────↗
//! ```
//!
//! The credential that worked is cached: the first connection prompts the user, concurrent ones wait for its
//! result, and later ones repeat it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_net::{DialOptions, HostWaits, dial, with_port};
use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::sync::watch;
use tokio::time::Instant;

use super::algorithms::Algorithms;
use super::auth::{Applicant, Credential, Outcome, Step};
use super::config::{self, Hop, HostConfig, Method, Route};
use super::connection::{PathStats, SshConnection};
use super::host_key::HostKeyJudge;
use super::identity::{self, Identities};
use super::known_hosts::KnownHosts;
use super::options::{PasswordSource, Prompter, SshOptions};
use super::proxy;
use super::transport::link::{self, Link};
use super::transport::{
    self, Channel, Greeter, Handshake, KeyExchanges, Memory, Opened, Opening, RttCounter, Session,
};
use crate::transport::First;

/// Most jump hosts in a row. OpenSSH has no limit, but without one, haul would never finish resolving hosts whose
/// configurations jump through each other.
const MAX_JUMPS: usize = 16;

/// A host with its configuration from ssh_config. It remembers what worked (credential, host key),
/// so that further connections neither prompt again nor try what failed.
#[derive(Debug)]
pub struct SshHost {
    config: HostConfig,
    location: String,
    password: Option<PasswordSource>,
    prompter: Arc<dyn Prompter>,
    judge: Arc<HostKeyJudge>,
    greeter: Arc<Greeter>,
    /// The host through which this one is reached.
    jump: Option<Box<SshHost>>,
    /// Its position on the route, if it is a jump host.
    position: Option<RoutePosition>,
    credential: Mutex<Known>,
    /// Locked by the connection that determines the credential. Contains the cause if that failed
    /// for good.
    finding: tokio::sync::Mutex<Option<String>>,
    /// Whether the channel number may be guessed, which holds until a guess was wrong.
    guesses: AtomicBool,
    memory: Arc<Memory>,
    key_exchanges: KeyExchanges,
    /// RTT of the first connection, once it is known.
    first_rtt: watch::Sender<Option<Duration>>,
    waits: HostWaits,
}

/// The credential that worked last.
#[derive(Debug, Default)]
struct Known {
    credential: Option<Credential>,
    /// Number of credentials cached so far.
    version: u64,
}

/// Position of a jump host on the route to a destination.
#[derive(Debug)]
struct RoutePosition {
    /// From 1, in the order of the route.
    number: usize,
    count: usize,
    destination: String,
}

impl RoutePosition {
    fn hint(&self) -> String {
        let Self { number, count, destination } = self;
        match count {
            1 => format!("this is the jump host on the way to {destination}"),
            _ => format!("this is jump host {number} of {count} on the way to {destination}"),
        }
    }
}

/// Why a host could not be reached.
#[derive(Debug)]
struct Failure {
    error: Error,
    /// Whether the error is from a jump host and names it.
    is_explained: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_explained: false }
    }
}

impl SshHost {
    /// Reads the configuration of a host, without connecting.
    ///
    /// A jump host (`-J`, ProxyJump) is configured from the same files. As with ssh, command line
    /// options (`-o`, `-i`, `-C`) apply to the destination only, and so does the password source.
    ///
    /// # Errors
    /// `InvalidInput` with file and line for an invalid configuration; a file that cannot be read.
    pub fn resolve(
        user: Option<&str>,
        host: &str,
        port: Option<u16>,
        options: &SshOptions,
        prompter: Arc<dyn Prompter>,
    ) -> Result<Self> {
        let mut host = Self::resolve_at(user, host, port, options, prompter, 0)?;
        host.number_jump_hosts();
        Ok(host)
    }

    /// Gives each jump host its position on the route.
    fn number_jump_hosts(&mut self) {
        let (count, destination) = (self.jump_hosts().count(), self.name());
        let mut number = count;
        let mut next = self.jump.as_deref_mut();
        while let Some(host) = next {
            host.position = Some(RoutePosition { number, count, destination: destination.clone() });
            number -= 1;
            next = host.jump.as_deref_mut();
        }
    }

    /// The jump hosts, last one first.
    fn jump_hosts(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.jump.as_deref(), |host| host.jump.as_deref())
    }

    /// Whether an error with this location is from a jump host.
    pub fn is_jump_host(&self, location: &str) -> bool {
        self.jump_hosts().any(|host| host.name() == location)
    }

    /// The user, the host as it was written, and the port unless it is 22.
    fn name(&self) -> String {
        let port = if self.config.port == 22 { 0 } else { self.config.port };
        format!("{}@{}", self.config.user, with_port(&self.config.alias, port))
    }

    fn resolve_at(
        user: Option<&str>,
        host: &str,
        port: Option<u16>,
        options: &SshOptions,
        prompter: Arc<dyn Prompter>,
        depth: usize,
    ) -> Result<Self> {
        let config = config::resolve(user, host, port, options)?;
        let jump = match &config.route {
            Route::Jump(hops) => {
                if depth >= MAX_JUMPS {
                    return Err(Error::new(ErrorKind::InvalidInput, "read the SSH configuration")
                        .at(host)
                        .because(format!(
                            "more than {MAX_JUMPS} jump hosts in a row; is its ProxyJump a loop?"
                        )));
                }
                Some(Box::new(jump_host(hops, options, &prompter, depth)?))
            }
            Route::Direct | Route::Command(_) => None,
        };
        let location = format!("{}@{}", config.user, with_port(&config.alias, config.port));
        let alias = config.host_key_alias.as_deref();
        let route = format!("{:?}", config.route);
        let pin = options.pins.of(&config.host_name, config.port, alias, route);
        let judge = HostKeyJudge::new(&config, pin, location.clone(), Arc::clone(&prompter));
        Ok(Self {
            judge: Arc::new(judge),
            greeter: Arc::new(Greeter::new(Arc::clone(&prompter))),
            location,
            password: options.password.clone(),
            prompter,
            jump,
            position: None,
            credential: Mutex::default(),
            finding: tokio::sync::Mutex::default(),
            guesses: AtomicBool::new(true),
            memory: Arc::new(Memory::new(
                options.memory.as_deref(),
                &config.host_name,
                config.port,
            )),
            key_exchanges: KeyExchanges::default(),
            first_rtt: watch::Sender::new(None),
            waits: options.waits.of(with_port(&config.host_name, config.port)),
            config,
        })
    }

    /// The user on the host.
    pub fn user(&self) -> &str {
        &self.config.user
    }

    /// The name or address to connect to.
    pub fn host_name(&self) -> &str {
        &self.config.host_name
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.config.port
    }

    /// Reports long waits for this host.
    pub fn waits(&self) -> HostWaits {
        self.waits.clone()
    }

    /// Key exchanges completed so far on all connections to this host: one for each connection, and
    /// one more whenever either side renewed the keys (`RekeyLimit`).
    pub fn key_exchanges(&self) -> u32 {
        self.key_exchanges.count()
    }

    /// Waits for the RTT of the first connection, which is known long before authentication ends.
    /// `None` behind a proxy command or a jump host, where the TCP handshake does not measure it.
    pub async fn first_rtt(&self) -> Option<Duration> {
        if self.jump.is_some() || matches!(self.config.route, Route::Command(_)) {
            return None;
        }
        let mut known = self.first_rtt.subscribe();
        known.wait_for(Option::is_some).await.ok().and_then(|known| *known)
    }

    /// Opens a connection, from TCP to authentication. May be called concurrently: only the first
    /// connection prompts the user, others wait for its credential.
    ///
    /// # Errors
    /// `Unreachable`: no response, or the connection was lost. `Busy`: the server closed it before
    /// the key exchange (MaxStartups). `Unauthenticated`, not to be retried: the host key or the
    /// credentials are not accepted. `Protocol`: no common algorithm, or not an SSH server.
    pub async fn connect(&self) -> Result<SshConnection> {
        match self.attempt(None).await {
            Ok((connection, _)) => Ok(connection),
            Err(failure) => Err(failure.error),
        }
    }

    /// Opens a connection with a channel to a subsystem, and sends on it the bytes that `first` returns for the
    /// server's identification. If the server tolerates it, all this travels with the authentication and costs no
    /// additional RTT.
    ///
    /// # Errors
    /// Those of [`SshHost::connect`]; `Busy` if the server opens no channel (MaxSessions).
    pub async fn connect_to(
        &self,
        subsystem: &str,
        first: &First,
    ) -> Result<(SshConnection, Channel)> {
        // A wrong guess is made only once.
        for _ in 0..2 {
            let attempt = self.attempt(Some((subsystem, first))).await;
            let (connection, opened) = attempt.map_err(|failure| failure.error)?;
            match opened {
                Some(Opened::Channel(channel)) => return Ok((connection, channel)),
                Some(Opened::WrongGuess) => self.guesses.store(false, Ordering::Relaxed),
                None => break,
            }
        }
        Err(self.error().because("the server's channel numbers cannot be predicted"))
    }

    async fn attempt(
        &self,
        wanted: Option<(&str, &First)>,
    ) -> Result<(SshConnection, Option<Opened>), Failure> {
        let rtts = RttCounter::default();
        // Keys are looked up while the network responds.
        let identities = match self.remembered() {
            Some(_) => None,
            None => Some(Gathering(tokio::spawn(identity::gather(self.config.clone())))),
        };
        let mispredictions = self.memory.mispredictions();
        let (mut handshake, path_stats) = match self.reach(&rtts).await {
            // The server negotiated another key exchange than the cached one, which is discarded by now.
            Err(_) if self.memory.mispredictions() != mispredictions => self.reach(&rtts).await?,
            reached => reached?,
        };
        if let Some((subsystem, first)) = wanted {
            let first = first(handshake.server_version());
            handshake.want(subsystem, first, self.guesses.load(Ordering::Relaxed));
        }
        self.authenticate(&mut handshake, identities).await?;
        let (session, opened) = handshake.into_session().await?;
        Ok((SshConnection::new(session, rtts, path_stats), opened))
    }

    /// Connects and verifies the host key; also returns measurements of the path.
    async fn reach(&self, rtts: &RttCounter) -> Result<(Handshake, PathStats), Failure> {
        let reading = tokio::task::spawn_blocking({
            let files: Vec<PathBuf> =
                [&self.config.user_known_hosts[..], &self.config.global_known_hosts].concat();
            move || KnownHosts::read(files.iter().map(PathBuf::as_path))
        });
        let known = async {
            let read = reading.await.map_err(|error| self.error().with_source(error))?;
            Ok::<_, Failure>(read?)
        };
        match (&self.config.route, &self.jump) {
            (Route::Command(command), _) => {
                let (process, stderr) = proxy::start(command)?;
                let opened = self.open(process, known.await?, rtts, None).await;
                let handshake = match opened {
                    Ok(handshake) => handshake,
                    Err(error) => return Err(self.behind_command(error, stderr).await.into()),
                };
                let rtt = handshake.first_exchange();
                Ok((handshake, PathStats { rtt, gauge: None }))
            }
            (Route::Jump(_), Some(jump)) => {
                let (tunnel, known) = tokio::try_join!(self.tunnel(jump, rtts), known)?;
                let (tunnel, rtt) = tunnel;
                let handshake = self.open(tunnel, known, rtts, Some(rtt)).await?;
                // Measurements of the first hop do not describe the rest of the path.
                Ok((handshake, PathStats { rtt, gauge: None }))
            }
            (Route::Direct | Route::Jump(_), _) => {
                let config = &self.config;
                let options = DialOptions {
                    family: config.family,
                    bind: config.bind_address.clone(),
                    limit: config.connect_timeout,
                    silence: config.silence_limit(),
                    // As with ssh, only ProxyCommand sets a proxy.
                    proxy: None,
                };
                let dialling = dial(&config.host_name, config.port, &options);
                let dialling = self.waits.watch(|| "connection".to_owned(), dialling);
                let dialling = async { Ok(dialling.await?) };
                let (dialled, known) = tokio::try_join!(dialling, known)?;
                rtts.add(1);
                self.first_rtt.send_if_modified(|first| {
                    first.is_none() && first.replace(dialled.rtt).is_none()
                });
                let rtt = dialled.rtt;
                let (link, gauge) = link::tcp(dialled.stream);
                let handshake = self.open(link, known, rtts, Some(rtt)).await?;
                Ok((handshake, PathStats { rtt, gauge }))
            }
        }
    }

    /// Adds the output of a ProxyCommand, if there is any, to the error of a stream that ended. An error with output
    /// counts as the command's failure, not as a busy server.
    async fn behind_command(&self, error: Error, stderr: proxy::StderrCapture) -> Error {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::Unreachable => {}
            _ => return error,
        }
        let printed = stderr.text().await;
        if printed.is_empty() {
            return error;
        }
        self.error().because(format!("{}; the ProxyCommand printed: {printed}", error.cause()))
    }

    /// A tunnel through a jump host. That host is connected before the channel is opened, so
    /// opening takes one RTT of the whole path.
    async fn tunnel(&self, jump: &Self, rtts: &RttCounter) -> Result<(Link, Duration), Failure> {
        let connection = Box::pin(jump.attempt(None)).await;
        let (connection, _) = connection.map_err(|failure| jump.explained(failure))?;
        rtts.add(connection.rtts());
        let session: Arc<Session> = connection.into_session();
        let start = Instant::now();
        let tunnel = session.direct_tcpip(&self.config.host_name, self.config.port).await;
        let tunnel = tunnel.map_err(|error| jump.explained(error.into()))?;
        rtts.add(1);
        Ok((tunnel, start.elapsed()))
    }

    /// Adds the name and position of this jump host to a failure.
    fn explained(&self, failure: Failure) -> Failure {
        let Failure { error, is_explained } = failure;
        let Some(jump) = self.position.as_ref().filter(|_| !is_explained) else {
            return Failure { error, is_explained };
        };
        let hint = match error.hint() {
            Some(hint) => format!("{}; {hint}", jump.hint()),
            None => jump.hint(),
        };
        // The error may have the address, which the user may never have written.
        let named = Error::new(error.kind(), error.operation()).at(self.name());
        let named = named.because(error.cause()).with_retry(error.retry());
        Failure { error: named.hinting(hint), is_explained: true }
    }

    async fn open(
        &self,
        link: Link,
        known: KnownHosts,
        rtts: &RttCounter,
        rtt: Option<Duration>,
    ) -> Result<Handshake> {
        let algorithms = Algorithms::choose(&self.config, &known.key_types(&self.judge.host))?;
        let opening = Opening {
            config: &self.config,
            algorithms: &algorithms,
            host: transport::Host {
                judge: Arc::clone(&self.judge),
                known: Arc::new(known),
                key_exchanges: self.key_exchanges.clone(),
                memory: Arc::clone(&self.memory),
            },
            greeter: Arc::clone(&self.greeter),
            location: self.location.clone(),
            waits: self.waits.clone(),
            rtts: rtts.clone(),
            rtt,
        };
        Box::pin(transport::open(link, opening)).await
    }

    async fn authenticate(
        &self,
        handshake: &mut Handshake,
        identities: Option<Gathering>,
    ) -> Result<()> {
        let applicant = Applicant {
            config: &self.config,
            location: &self.location,
            password: self.password.as_ref(),
            prompter: &self.prompter,
        };
        // The steps that the server has accepted on this connection so far.
        let mut accepted = Credential::new();
        let mut refused = None;
        if let Some((version, credential)) = self.remembered() {
            let outcome = applicant.repeat(handshake, &credential, &mut accepted).await?;
            if outcome == Outcome::Accepted {
                return Ok(());
            }
            // It has worked before but not now, so all credentials are tried again.
            self.forget(version);
            refused = Some(version);
        }
        let identities = match identities {
            Some(gathering) => gathering.finish().await,
            None => identity::gather(self.config.clone()).await,
        };
        let mut finding = match self.finding.try_lock() {
            Ok(finding) => finding,
            Err(_) => {
                // Another connection is determining the credential. If its first attempt is
                // obvious, making the same attempt saves the RTTs of waiting for it.
                let obvious = self.obvious_step(&applicant, &identities);
                if let Some(step) = obvious.filter(|_| accepted.is_empty()) {
                    let step = [step];
                    let outcome = applicant.repeat(handshake, &step, &mut accepted).await?;
                    if outcome == Outcome::Accepted {
                        self.remember(step.into());
                        return Ok(());
                    }
                }
                self.finding.lock().await
            }
        };
        // Other connections may have determined a credential meanwhile, and later a newer one.
        while let Some((version, credential)) = self.remembered()
            && refused != Some(version)
        {
            drop(finding);
            let left = credential.get(accepted.len()..).unwrap_or_default();
            if applicant.repeat(handshake, left, &mut accepted).await? == Outcome::Accepted {
                return Ok(());
            }
            refused = Some(version);
            finding = self.finding.lock().await;
        }
        if let Some(cause) = finding.clone() {
            // Another connection has failed with all credentials. Prompting again for each lane
            // would never end, and a server that counts failures would lock the user out.
            return Err(Error::new(ErrorKind::Unauthenticated, "authenticate")
                .at(&self.location)
                .because(cause)
                .with_retry(Retry::Never));
        }
        match Box::pin(applicant.apply(handshake, identities, accepted)).await {
            Ok(credential) => {
                self.remember(credential);
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::Unauthenticated {
                    *finding = Some(error.cause());
                }
                Err(error)
            }
        }
    }

    fn obvious_step(&self, applicant: &Applicant<'_>, identities: &Identities) -> Option<Step> {
        let by_key = applicant.methods().first() == Some(&Method::PublicKey);
        let candidate = identities.obvious(self.config.identities_named).filter(|_| by_key)?;
        Some(Step::Key(Arc::clone(candidate)))
    }

    fn remember(&self, credential: Credential) {
        let mut known = self.known();
        known.version += 1;
        known.credential = Some(credential);
    }

    /// The credential that worked last, and its version.
    fn remembered(&self) -> Option<(u64, Credential)> {
        let known = self.known();
        known.credential.clone().map(|credential| (known.version, credential))
    }

    /// Forgets a credential, unless there is a newer one.
    fn forget(&self, version: u64) {
        let mut known = self.known();
        if known.version == version {
            known.credential = None;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.credential.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self) -> Error {
        Error::new(ErrorKind::Unreachable, "connect").at(&self.location)
    }
}

/// A lookup of keys, aborted on drop.
struct Gathering(tokio::task::JoinHandle<Identities>);

impl Gathering {
    async fn finish(mut self) -> Identities {
        (&mut self.0).await.unwrap_or_else(|error| Identities {
            notes: vec![format!("the keys could not be looked for: {error}")],
            ..Identities::default()
        })
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The last jump host, which is reached through those before it.
fn jump_host(
    hops: &[Hop],
    options: &SshOptions,
    prompter: &Arc<dyn Prompter>,
    depth: usize,
) -> Result<SshHost> {
    let Some((last, before)) = hops.split_last() else {
        return Err(Error::new(ErrorKind::InvalidInput, "read the SSH configuration")
            .because("ProxyJump names no host"));
    };
    let mut options = options.for_jump_host();
    options.jump = (!before.is_empty()).then(|| {
        let before = before.iter().map(|hop| {
            let user = hop.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
            format!("{user}{}", with_port(&hop.host, hop.port.unwrap_or(0)))
        });
        before.collect::<Vec<_>>().join(",")
    });
    let prompter = Arc::clone(prompter);
    SshHost::resolve_at(last.user.as_deref(), &last.host, last.port, &options, prompter, depth + 1)
}
