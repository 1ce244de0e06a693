//! One lane: a logged-in control connection, and at most one data connection beside it.
//!
//! A data connection is made in the fewest RTTs that FTP allows: one to request a port, then the
//! connection, its TLS handshake and the command that uses it start together. The server waits for
//! whichever arrives last.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_net::{DialOptions, Direction, Hold, RttGauge, dial, with_port};
use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::control::Control;
use crate::error::{done, lost, protocol, refused};
use crate::learnt::{Learnt, Lesson};
use crate::server::Server;
use crate::stream::{Patience, Security, Stream};
use crate::wire::{Command, HashCommand, Reply, SHA_256, announced_size, extended_port, port};

/// Limit for opening a data connection. Firewalls drop packets of blocked ones silently.
const DATA_LIMIT: Duration = Duration::from_secs(20);

/// How long to wait for the reply that states why a data connection was refused.
const REASON: Duration = Duration::from_secs(2);

/// How long to wait for the final reply to a transfer that was stopped.
const FINAL_REPLY_LIMIT: Duration = Duration::from_secs(10);

/// How long to wait for the data connection, and then for data, if the server reports a transfer as done
/// without announcing its beginning.
const UNANNOUNCED: Duration = Duration::from_secs(2);

/// The longest silence of a server while it hashes a file: 180 GB at 100 MB/s.
const HASH_SILENCE: Duration = Duration::from_secs(30 * 60);

/// The far end of the control connection, so that data connections go to the same host.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// Its address, with the zone of an IPv6 address.
    Direct(SocketAddr),
    /// A host behind a proxy, which may resolve the name to another address than this machine would.
    Through(Arc<str>, DialOptions),
}

impl Peer {
    /// The same host at another port.
    fn at(&self, port: u16) -> Endpoint<'_> {
        match self {
            Self::Direct(address) => {
                let mut address = *address;
                address.set_port(port);
                Endpoint::Address(address)
            }
            Self::Through(host, options) => Endpoint::Behind(host, port, options),
        }
    }

    /// Whether it is known to be reached over IPv6, which has no `PASV`.
    fn is_ipv6(&self) -> bool {
        match self {
            Self::Direct(address) => !address.ip().to_canonical().is_ipv4(),
            Self::Through(host, _) => host.contains(':'),
        }
    }
}

/// Where a data connection goes.
#[derive(Debug, Clone, Copy)]
enum Endpoint<'a> {
    Address(SocketAddr),
    Behind(&'a str, u16, &'a DialOptions),
}

impl Endpoint<'_> {
    async fn connect(self) -> io::Result<TcpStream> {
        match self {
            Self::Address(address) => TcpStream::connect(address).await,
            Self::Behind(host, port, options) => match dial(host, port, options).await {
                Ok(dialled) => Ok(dialled.stream),
                Err(error) => Err(io::Error::other(error.cause())),
            },
        }
    }
}

impl fmt::Display for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Behind(host, port, _) => f.write_str(&with_port(host, *port)),
        }
    }
}

/// A lane.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) control: Control,
    pub(crate) server: Arc<Server>,
    /// How data connections are encrypted.
    security: Option<Security>,
    /// The far end of the control connection.
    peer: Peer,
    /// How long data connections may be silent.
    patience: Patience,
    /// The length of the present transfer, if the server announced it.
    announced: Option<u64>,
    /// The server reported the transfer as done instead of announcing its beginning.
    is_done: bool,
    /// `OPTS HASH` has selected SHA-256 on this connection.
    selected_hash: bool,
    /// This lane should not be reused.
    worn_out: bool,
    gauge: Arc<RttGauge>,
    _hold: Hold,
    /// A paused download that can be continued.
    parked: Option<Parked>,
}

/// A paused download. `opening` is the number of the opened file that it belongs to, `at` its offset.
#[derive(Debug)]
struct Parked {
    opening: u64,
    at: u64,
    since: Instant,
    data: Stream,
}

impl Parked {
    const fn is_at(&self, opening: u64, offset: u64) -> bool {
        self.at == offset && self.opening == opening
    }
}

/// A session whose server may be silent for [`HASH_SILENCE`]. The usual limit applies again once this is dropped, which
/// includes an exchange that is abandoned.
struct LongSilence<'a>(&'a mut Session);

impl<'a> LongSilence<'a> {
    fn allow(session: &'a mut Session) -> Self {
        session.control.set_silence(session.patience.silence.max(HASH_SILENCE));
        Self(session)
    }
}

impl Drop for LongSilence<'_> {
    fn drop(&mut self) {
        self.0.control.set_silence(self.0.patience.silence);
    }
}

impl Session {
    pub(crate) fn new(
        control: Control,
        server: Arc<Server>,
        security: Option<Security>,
        (peer, patience): (Peer, Patience),
        (gauge, hold): (RttGauge, Hold),
    ) -> Self {
        let parked = None;
        let gauge = Arc::new(gauge);
        Self {
            control,
            server,
            security,
            peer,
            patience,
            announced: None,
            is_done: false,
            selected_hash: false,
            worn_out: false,
            gauge,
            _hold: hold,
            parked,
        }
    }

    /// Measures the RTT of the control connection.
    pub(crate) const fn gauge(&self) -> &Arc<RttGauge> {
        &self.gauge
    }

    /// Whether the next command gets the next reply, either at once or after ending a parked download.
    pub(crate) fn is_usable(&self) -> bool {
        self.control.is_in_step() || (self.parked.is_some() && !self.control.is_broken())
    }

    /// Whether the lane should not be reused.
    pub(crate) const fn is_worn_out(&self) -> bool {
        self.worn_out
    }

    /// Sends commands and returns their replies.
    pub(crate) async fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Reply>> {
        self.unpark().await?;
        self.control.exchange(commands).await
    }

    /// Requests a digest. The server may be silent for [`HASH_SILENCE`] until it has read the file.
    pub(crate) async fn hash(&mut self, how: HashCommand, command: Command) -> Result<Reply> {
        let is_other = matches!(how, HashCommand::Hash { is_default: false });
        if is_other && !self.selected_hash {
            // Not in one flight: a late reply to the second command would look like a lost one.
            self.exchange(&[Command::new("OPTS", format!("HASH {SHA_256}"))?]).await?;
            self.selected_hash = true;
        }
        let replies = LongSilence::allow(self).0.exchange(&[command]).await;
        replies?.pop().ok_or_else(|| protocol("read the digest", "a reply is missing"))
    }

    /// The data of a file from `offset` on: from a download of `opening` parked at that offset, or a new one.
    pub(crate) async fn retrieve(
        &mut self,
        path: &[u8],
        opening: u64,
        offset: u64,
    ) -> Result<Stream> {
        let mut data = match self.parked.take_if(|parked| parked.is_at(opening, offset)) {
            Some(parked) => parked.data,
            None => self.transfer(offset, Command::new("RETR", path)?, "read").await?,
        };
        if let Some(sample) = self.gauge.sample() {
            data.count_toward(self.server.receive_budget(sample.shortest));
        }
        self.server.in_use.add(data.measure(Direction::In));
        Ok(data)
    }

    /// A data connection that writes a file from `offset` on; with offset 0 the file is truncated.
    pub(crate) async fn store(&mut self, path: &[u8], offset: u64) -> Result<Stream> {
        let mut data = self.transfer(offset, Command::new("STOR", path)?, "write").await?;
        if self.is_done {
            return Err(protocol(
                "write",
                "the server confirmed the transfer before any data was sent",
            ));
        }
        self.server.in_use.add(data.measure(Direction::Out));
        Ok(data)
    }

    /// The length that the server announced for the last transfer.
    pub(crate) const fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Opens a data connection for `command`.
    pub(crate) async fn transfer(
        &mut self,
        offset: u64,
        command: Command,
        operation: &'static str,
    ) -> Result<Stream> {
        (self.is_done, self.announced) = (false, None);
        let (port, extended) = self.passive(operation).await?;
        let peer = self.peer.clone();
        let endpoint = peer.at(port);
        let mut commands = Vec::new();
        if offset > 0 {
            commands.push(Command::new("REST", offset.to_string())?);
        }
        let shown: Arc<str> = command.shown().into();
        commands.push(command);
        let security = self.security.clone();
        let (begun, connected) = {
            let patience = self.patience.clone();
            let limit = DATA_LIMIT.min(patience.silence);
            let what = || format!("data connection for {shown}");
            let connect = connect(endpoint, &patience, Arc::clone(&shown), security.as_ref());
            // Boxed, since the future of a TLS handshake is large.
            let mut connecting = Box::pin(async {
                let connected = patience.waits.within(limit, what, connect).await;
                connected.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
            });
            let mut beginning =
                pin!(begin(&mut self.control, &self.server.learnt, &commands, operation));
            tokio::select! {
                biased;
                begun = &mut beginning => match begun {
                    // A server with nothing to send may never accept the connection.
                    Ok(Begun::Over) => (begun, timeout(UNANNOUNCED, connecting).await.ok()),
                    Ok(Begun::Starts(_)) => (begun, Some(connecting.await)),
                    Err(_) => (begun, None),
                },
                connected = &mut connecting => match &connected {
                    Ok(_) => (beginning.await, Some(connected)),
                    // The server may report why the connection failed.
                    Err(_) => match timeout(REASON, &mut beginning).await {
                        Ok(begun) => (begun, Some(connected)),
                        Err(_) => (Ok(Begun::Starts(None)), Some(connected)),
                    },
                },
            }
        };
        let failed = matches!(&connected, Some(Err(_)));
        let not_refused = begun.as_ref().err().is_none_or(|error| error.retry() == Retry::Later);
        if matches!(&connected, Some(Ok(_))) && extended {
            self.server.learnt.learn(Lesson::EpsvWorks);
        } else if failed && not_refused && extended {
            self.epsv_failed();
        }
        if (begun.is_err() || failed) && security.is_some() {
            // The aborted handshake used up a session ticket, and each is good for one handshake. Once
            // they run out, a server that requires resumption refuses valid connections.
            self.worn_out = true;
        }
        match (begun?, connected) {
            (Begun::Over, connected) => {
                self.is_done = true;
                Ok(self.unannounced(connected.and_then(Result::ok)).await)
            }
            (Begun::Starts(announced), Some(Ok(stream))) => {
                self.announced = announced;
                Ok(stream)
            }
            (Begun::Starts(_), failed) => {
                self.control.break_off();
                let limit = DATA_LIMIT.min(self.patience.silence);
                let failed = failed.and_then(Result::err);
                Err(no_data_connection(operation, endpoint, failed, limit))
            }
        }
    }

    /// The data of a transfer that the server reports as done without announcing its beginning. Some servers
    /// never announce it; most have nothing to send.
    async fn unannounced(&self, stream: Option<Stream>) -> Stream {
        match stream.filter(|_| !self.server.learnt.knows(Lesson::AnnouncesBegin)) {
            Some(stream) if timeout(UNANNOUNCED, stream.readable()).await.is_ok() => stream,
            _ => Stream::nothing(self.patience.clone()),
        }
    }

    /// A firewall or NAT may support `PASV` and not `EPSV`. IPv6 has only `EPSV`.
    fn epsv_failed(&self) {
        if !self.peer.is_ipv6() && !self.server.learnt.knows(Lesson::EpsvWorks) {
            self.server.learnt.learn(Lesson::EpsvLeadsNowhere);
        }
    }

    /// Requests a port to connect to, and returns whether it is from `EPSV`. A parked download is ended; in
    /// the same RTT if `EPSV` is used and the server processes commands strictly in order.
    async fn passive(&mut self, operation: &'static str) -> Result<(u16, bool)> {
        let blocked = self.server.learnt.knows(Lesson::EpsvLeadsNowhere);
        if self.server.epsv() && !blocked {
            if let Some(port) = self.extended_passive(operation).await? {
                return Ok((port, true));
            }
        } else {
            self.unpark().await?;
        }
        let reply = self.control.request(&Command::bare("PASV")).await?;
        if reply.code() == 227
            && let Some(port) = port(reply.last_line())
        {
            return Ok((port, false));
        }
        if !reply.is_done() && !(500..600).contains(&reply.code()) {
            return Err(refused(operation, &reply));
        }
        if blocked
            && self.server.epsv()
            && let Some(port) = self.extended_passive(operation).await?
        {
            return Ok((port, true));
        }
        if reply.is_done() {
            return Err(protocol(operation, format!("no port in the reply: {reply}")));
        }
        Err(Error::new(ErrorKind::Unsupported, operation).because(format!(
            "the server supports neither EPSV nor PASV ({reply}); haul does not support active mode"
        )))
    }

    /// The port from `EPSV`, `None` if the server does not support it.
    async fn extended_passive(&mut self, operation: &'static str) -> Result<Option<u16>> {
        if !self.server.processes_in_order {
            self.unpark().await?;
        }
        let parked = self.parked.take().map(|parked| drop(parked.data));
        self.control.send(&[Command::bare("EPSV")]).await?;
        if parked.is_some() {
            self.control.last_reply().await?;
        }
        let reply = self.control.last_reply().await?;
        if reply.code() == 229
            && let Some(port) = extended_port(reply.last_line())
        {
            return Ok(Some(port));
        }
        if !reply.is_done() && !(500..600).contains(&reply.code()) {
            return Err(refused(operation, &reply));
        }
        self.server.learnt.learn(Lesson::NoEpsv);
        Ok(None)
    }

    /// Reads the final reply to a transfer whose data connection is closed.
    pub(crate) async fn finish(&mut self, operation: &'static str) -> Result<()> {
        if std::mem::take(&mut self.is_done) {
            return Ok(());
        }
        done(operation, &self.control.last_reply().await?)
    }

    /// Stops a download early by closing its data connection. Every server notices that because it is
    /// sending, and replies once. `ABOR` would get one or two replies, and from vsftpd only when the
    /// transfer is over anyway.
    pub(crate) async fn stop(&mut self, data: Stream) -> Result<()> {
        drop(data);
        if std::mem::take(&mut self.is_done) {
            return Ok(());
        }
        match timeout(FINAL_REPLY_LIMIT, self.control.last_reply()).await {
            Ok(reply) => reply.map(drop),
            Err(_) => {
                self.control.break_off();
                Err(lost("end a transfer", "the server did not confirm the end of the transfer"))
            }
        }
    }

    /// Parks a download at `at`, in case the next read begins at that offset.
    pub(crate) fn park(&mut self, opening: u64, at: u64, mut data: Stream) {
        if std::mem::take(&mut self.is_done) {
            // No final reply will follow.
            return;
        }
        data.suspend();
        self.parked = Some(Parked { opening, at, since: Instant::now(), data });
    }

    /// Whether a download of `opening` is parked at `offset`.
    pub(crate) fn is_parked_at(&self, opening: u64, offset: u64) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.is_at(opening, offset))
    }

    /// How long a download has been parked.
    pub(crate) fn parked_for(&self) -> Option<Duration> {
        self.parked.as_ref().map(|parked| parked.since.elapsed())
    }

    /// Ends a parked download.
    pub(crate) async fn unpark(&mut self) -> Result<()> {
        match self.parked.take() {
            Some(parked) => self.stop(parked.data).await,
            None => Ok(()),
        }
    }
}

/// The server's response to the command that begins a transfer.
enum Begun {
    /// The transfer begins, with the length if announced.
    Starts(Option<u64>),
    /// The transfer is done.
    Over,
}

/// Sends the commands that begin a transfer, and waits until it has begun.
async fn begin(
    control: &mut Control,
    learnt: &Learnt,
    commands: &[Command],
    operation: &'static str,
) -> Result<Begun> {
    let (last, before) =
        commands.split_last().ok_or_else(|| protocol(operation, "nothing to do"))?;
    let together = before.is_empty() || control.takes_several();
    control.send(if together { commands } else { before }).await?;
    let mut refusal = None;
    for _ in before {
        let reply = control.reply().await?;
        if !reply.is_pending() {
            refusal = Some(reply);
        }
    }
    if refusal.as_ref().is_some_and(Reply::is_unknown) {
        learnt.learn(Lesson::NoRest);
    }
    if !together {
        if let Some(reply) = refusal {
            return Err(refused(operation, &reply));
        }
        control.send(std::slice::from_ref(last)).await?;
    }
    let reply = control.reply().await?;
    if let Some(refusal) = refusal {
        // Without REST the file would silently be sent from its beginning.
        control.break_off();
        return Err(refused(operation, &refusal));
    }
    if reply.is_preliminary() {
        learnt.learn(Lesson::AnnouncesBegin);
        // Not the length if it is part of the quoted name, as in `x (12 bytes)`: `mentions` ignores names.
        let announced = announced_size(reply.last_line());
        let announced = announced.filter(|bytes| reply.mentions(&format!("({bytes} byte")));
        return Ok(Begun::Starts(announced));
    }
    if reply.is_done() { Ok(Begun::Over) } else { Err(refused(operation, &reply)) }
}

async fn connect(
    endpoint: Endpoint<'_>,
    patience: &Patience,
    command: Arc<str>,
    security: Option<&Security>,
) -> io::Result<Stream> {
    let stream = endpoint.connect().await?;
    stream.set_nodelay(true)?;
    let stream = Stream::data(stream, patience.clone(), command);
    match security {
        Some(security) => security.secure(stream).await,
        None => Ok(stream),
    }
}

fn no_data_connection(
    operation: &'static str,
    endpoint: Endpoint<'_>,
    failed: Option<io::Error>,
    limit: Duration,
) -> Error {
    let what = format!("cannot open the data connection to {endpoint}");
    match failed.filter(|error| error.kind() != io::ErrorKind::TimedOut) {
        Some(error) => {
            // TLS errors are permanent.
            let tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            let retry = if tls { Retry::Never } else { Retry::Later };
            lost(operation, what).with_source(error).with_retry(retry)
        }
        None => lost(
            operation,
            format!("{what} within {} s: is it behind a firewall?", limit.as_secs_f32()),
        ),
    }
}
