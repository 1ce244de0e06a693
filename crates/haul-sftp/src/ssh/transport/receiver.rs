//! The connection's reader task: decrypts packets, exchanges keys, and passes messages on to channels and
//! authentication. It waits only for the link, and for the user to decide on a host key or see a banner.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::cipher::Cipher;
use super::connection::Connection;
use super::counters::KeyExchanges;
use super::end::{End, violation};
use super::host_key;
use super::identification::{IDENTIFICATION, Identification};
use super::kex::{Exchange, Exchanged};
use super::line::Event;
use super::link::Source;
use super::memory::Memory;
use super::negotiation::Agreed;
use super::packet::{Opened, Opener};
use super::read_buffer::ReadBuffer;
use super::state::{Greeter, Phase, one_line, printable};
use super::wire::{Put, Reader, message};
use crate::ssh::host_key::HostKeyJudge;
use crate::ssh::known_hosts::KnownHosts;

/// Messages specific to the key exchange method (RFC 4250, 4.1.2).
const KEX_METHODS: std::ops::RangeInclusive<u8> = 30..=49;

/// Messages of the connection protocol (RFC 4254).
const CONNECTION: std::ops::RangeInclusive<u8> = message::GLOBAL_REQUEST..=message::CHANNEL_FAILURE;

/// Data up to this length is copied out of the read buffer: a slice keeps the whole buffer in memory, which
/// is not worth it for a short response.
const SHORT: usize = 4 << 10;

/// The host of a connection: its known keys, and what all connections to it share.
#[derive(Debug)]
pub struct Host {
    /// Decides on host keys.
    pub judge: Arc<HostKeyJudge>,
    /// The known host keys.
    pub known: Arc<KnownHosts>,
    /// Counts key exchanges.
    pub key_exchanges: KeyExchanges,
    /// What earlier connections have agreed on.
    pub memory: Arc<Memory>,
}

/// When keepalives are sent to a silent server, and after how many the connection is closed.
#[derive(Debug, Clone, Copy)]
pub struct Alive {
    pub interval: Option<Duration>,
    pub max_keepalives: u32,
}

/// The stage of a key exchange.
#[derive(Debug)]
enum Keys {
    /// None is in progress, or the server's offer is awaited.
    Settled,
    /// Our half was sent, and the server's is awaited.
    Begun(Box<Begun>),
    /// The server's NEWKEYS is awaited.
    Awaited(Box<Cipher>),
}

#[derive(Debug)]
struct Begun {
    exchange: Exchange,
    ours: Vec<u8>,
    theirs: Bytes,
}

/// Reads from a connection.
#[derive(Debug)]
pub struct Receiver {
    connection: Arc<Connection>,
    source: Source,
    read_buffer: ReadBuffer,
    opener: Opener,
    keys: Keys,
    agreed: Option<Agreed>,
    /// The accepted host key.
    accepted: Option<Bytes>,
    host: Host,
    greeter: Arc<Greeter>,
    /// Authentication messages, for [`Handshake`](super::Handshake).
    responses: mpsc::Sender<Bytes>,
    alive: Alive,
    /// Keepalives sent since the server's last bytes.
    keepalives: u32,
    /// The server's next packet is a wrong guess of the key exchange method, to be skipped.
    skip: bool,
    /// Whether incoming packets are encrypted already.
    keyed: bool,
    authenticated: bool,
    began: Instant,
}

impl Receiver {
    /// Reads from a connection whose first flight was sent.
    pub fn new(
        connection: Arc<Connection>,
        source: Source,
        host: Host,
        greeter: Arc<Greeter>,
        responses: mpsc::Sender<Bytes>,
        alive: Alive,
    ) -> Self {
        Self {
            connection,
            source,
            read_buffer: ReadBuffer::new(),
            opener: Opener::clear(),
            keys: Keys::Settled,
            agreed: None,
            accepted: None,
            host,
            greeter,
            responses,
            alive,
            keepalives: 0,
            skip: false,
            keyed: false,
            authenticated: false,
            began: Instant::now(),
        }
    }

    /// Reads until the connection ends, and records how it ended.
    pub async fn run(mut self) {
        let Err(end) = self.read().await;
        self.connection.finish(end);
    }

    async fn read(&mut self) -> Result<std::convert::Infallible, End> {
        let version = self.identification().await?;
        self.connection.state.version.get_or_init(|| version);
        loop {
            while let Some(message) = self.next_message()? {
                self.handle(message).await?;
            }
            if matches!(self.keys, Keys::Settled) && self.opener.is_used_up(self.connection.rekey) {
                self.connection.output().begin_exchange(&self.connection.offer)?;
                self.connection.send();
            }
            let whole = self.opener.packet_length(&mut self.read_buffer.buffer)?.unwrap_or(0);
            self.fill(whole).await?;
        }
    }

    /// The server's identification line.
    async fn identification(&mut self) -> Result<String, End> {
        let mut lines = Identification::default();
        loop {
            if let Some(line) = lines.next(&mut self.read_buffer.buffer)? {
                return Ok(line);
            }
            if let Err(end) = self.fill(0).await {
                return Err(if lines.has_skipped_lines() { End::NotSsh } else { end });
            }
        }
    }

    /// Reads what has arrived, with room for a packet of `whole` bytes. Sends keepalives while nothing
    /// arrives.
    async fn fill(&mut self, whole: usize) -> Result<(), End> {
        self.read_buffer.make_room(whole);
        let interval = self.alive.interval.filter(|_| self.connection.is_open());
        let read = loop {
            let reading = self.source.read(&mut self.read_buffer.buffer);
            let Some(interval) = interval else { break reading.await };
            match timeout(interval, reading).await {
                Ok(read) => break read,
                Err(_)
                    if self.alive.max_keepalives > 0
                        && self.keepalives >= self.alive.max_keepalives =>
                {
                    return Err(End::Silent);
                }
                Err(_) => {
                    self.keepalives += 1;
                    let mut keepalive = vec![message::GLOBAL_REQUEST];
                    keepalive.string(b"keepalive@openssh.com");
                    keepalive.boolean(true);
                    self.send(&keepalive)?;
                }
            }
        };
        let read = read?;
        if read == 0 {
            return Err(End::Closed);
        }
        self.keepalives = 0;
        self.read_buffer.read(read);
        // Only the first read is recorded.
        let _ = self.connection.state.first_exchange.set(self.began.elapsed());
        Ok(())
    }

    /// The next complete message in the read buffer.
    fn next_message(&mut self) -> Result<Option<Bytes>, End> {
        let Some(whole) = self.opener.packet_length(&mut self.read_buffer.buffer)? else {
            return Ok(None);
        };
        if self.read_buffer.buffer.len() < whole {
            return Ok(None);
        }
        let mut packet = self.read_buffer.buffer.split_to(whole);
        Ok(Some(match self.opener.open(&mut packet)? {
            Opened::Within(message) => packet.freeze().slice(message),
            Opened::Apart(message) => message.into(),
        }))
    }

    async fn handle(&mut self, message: Bytes) -> Result<(), End> {
        // `Opener::open` returns no empty messages.
        let number = message[0];
        let mut reader = Reader::new(&message[1..]);
        // Between its KEXINIT and its NEWKEYS a server sends only messages of the transport layer (RFC 4253,
        // 7.1). Some servers (asyncssh) continue to send on channels while keys are renewed, and clients
        // accept that: the packets are protected by the previous keys.
        let renewing_channels = self.keyed && CONNECTION.contains(&number);
        let exchanging = !renewing_channels && (!self.keyed || !matches!(self.keys, Keys::Settled));
        if std::mem::take(&mut self.skip) && KEX_METHODS.contains(&number) {
            return Ok(());
        }
        match number {
            message::CHANNEL_DATA if !exchanging => return self.data(message),
            message::DISCONNECT => {
                let reason = reader.u32()?;
                // Key exchange failed; protocol version not supported (RFC 4253, 11.1).
                let fatal = [3, 8].contains(&reason);
                return Err(End::Disconnected {
                    text: one_line(&printable(&reader.text()?)),
                    fatal,
                });
            }
            message::KEXINIT => return self.offered(&message),
            message::KEX_REPLY => return self.replied(&message).await,
            message::NEWKEYS => return self.renewed(),
            _ => {}
        }
        if exchanging {
            // Strict mode concerns the first exchange, where an attacker can insert packets. Packets before
            // the server's offer are checked by their number in `offered`.
            let strict = !self.keyed && self.agreed.as_ref().is_some_and(|agreed| agreed.strict);
            return match number {
                message::IGNORE | message::DEBUG | message::UNIMPLEMENTED if !strict => Ok(()),
                _ => Err(violation(format!("message {number} during a key exchange"))),
            };
        }
        match number {
            message::IGNORE | message::DEBUG | message::UNIMPLEMENTED => Ok(()),
            message::SERVICE_ACCEPT => {
                self.connection.state.reach(Phase::Serving);
                Ok(())
            }
            message::REQUEST_SUCCESS | message::REQUEST_FAILURE => Ok(()),
            message::EXT_INFO => self.extensions(reader),
            message::USERAUTH_BANNER => {
                self.greeter.greet(printable(&reader.text()?)).await;
                Ok(())
            }
            message::USERAUTH_REQUEST..=message::USERAUTH_LAST => self.authentication(&message),
            message::GLOBAL_REQUEST => {
                reader.string()?;
                if reader.boolean()? {
                    self.send(&[message::REQUEST_FAILURE])?;
                }
                Ok(())
            }
            message::CHANNEL_OPEN => {
                reader.string()?;
                // haul requests nothing for which a server may open channels.
                let mut refusal = super::line::to(message::CHANNEL_OPEN_FAILURE, reader.u32()?);
                refusal.u32(1);
                refusal.string(b"");
                refusal.string(b"");
                self.send(&refusal)
            }
            message::CHANNEL_OPEN_CONFIRMATION..=message::CHANNEL_FAILURE => self.channel(&message),
            _ => {
                let mut unknown = vec![message::UNIMPLEMENTED];
                unknown.u32(self.opener.number().wrapping_sub(1));
                self.send(&unknown)
            }
        }
    }

    /// Handles CHANNEL_DATA, by far the most frequent message.
    fn data(&mut self, mut message: Bytes) -> Result<(), End> {
        let mut reader = Reader::new(&message[1..]);
        let id = reader.u32()?;
        let length = reader.string()?.len();
        let channels = self.connection.channels();
        let Some(entry) = channels.get(&id).filter(|_| length > 0) else { return Ok(()) };
        entry.line.receive(length)?;
        let data = if length <= SHORT {
            Bytes::copy_from_slice(&message[9..9 + length])
        } else {
            message.advance(9);
            message.truncate(length);
            message
        };
        entry.line.deliver(&entry.inbox, Event::Data(data))
    }

    /// Handles the server's KEXINIT: sends ours and our half of the exchange, unless they were sent already.
    fn offered(&mut self, theirs: &[u8]) -> Result<(), End> {
        if !matches!(self.keys, Keys::Settled) {
            return Err(violation("KEXINIT during a key exchange"));
        }
        let connection = &self.connection;
        let agreed = connection.offer.agree(theirs)?;
        let initial = self.agreed.is_none();
        if initial && agreed.strict && self.opener.number() != 1 {
            return Err(violation("KEXINIT is not the first packet"));
        }
        let mut output = connection.output();
        output.begin_exchange(&connection.offer)?;
        let ours = output.take_offered().ok_or_else(|| violation("KEXINIT came twice"))?;
        let exchange = output.take_begun(&agreed)?;
        self.host.memory.agreed(connection.state.server_version(), &agreed);
        drop(output);
        connection.send();
        self.skip = agreed.skip;
        connection.agree(&agreed);
        let strict = self.agreed.as_ref().map(|first| first.strict);
        // Strict mode is decided in the first exchange only.
        self.agreed = Some(Agreed { strict: strict.unwrap_or(agreed.strict), ..agreed });
        // Copied, because `theirs` borrows from the read buffer.
        let theirs = Bytes::copy_from_slice(theirs);
        self.keys = Keys::Begun(Box::new(Begun { exchange, ours, theirs }));
        Ok(())
    }

    /// Handles the server's half: verifies and judges the host key, then derives the keys.
    async fn replied(&mut self, message: &Bytes) -> Result<(), End> {
        let (Keys::Begun(begun), Some(agreed)) =
            (std::mem::replace(&mut self.keys, Keys::Settled), self.agreed.clone())
        else {
            return Err(violation("a key exchange reply without a key exchange"));
        };
        let mut reader = Reader::new(&message[1..]);
        let (shown, theirs, signature) = (reader.string()?, reader.string()?, reader.string()?);
        let state = &self.connection.state;
        let shared = begun.exchange.agree(theirs)?;
        let exchanged = Exchanged {
            our_version: IDENTIFICATION,
            their_version: state.server_version(),
            our_offer: &begun.ours,
            their_offer: &begun.theirs,
            host_key: shown,
            theirs,
        };
        let hash = begun.exchange.hash(&exchanged, &shared);
        let key = host_key::verified(&agreed.host_key, shown, signature, &hash)?;
        let initial = self.accepted.is_none();
        if self.accepted.as_deref() != Some(shown) {
            let _prompting = state.prompting();
            self.host.judge.judge(&self.host.known, &key).await.map_err(End::Refused)?;
            self.accepted = Some(Bytes::copy_from_slice(shown));
        }
        if initial {
            self.host.memory.verified();
        }
        let session_id = state.session_id.get_or_init(|| hash.clone());
        let cipher = |suite: super::cipher::Suite, letters: [u8; 3]| {
            let lengths = suite.material();
            let material = begun.exchange.material(&lengths, letters, &shared, &hash, session_id);
            Cipher::new(suite, &material)
        };
        // RFC 4253, 7.2.
        let out = cipher(agreed.out, *b"ACE")?;
        self.keys = Keys::Awaited(Box::new(cipher(agreed.into, *b"BDF")?));
        let mut output = self.connection.output();
        output.take_keys(out, agreed.strict);
        drop(output);
        if initial {
            // The writer is not woken: NEWKEYS leaves in one flight with the first authentication request.
            state.reach(Phase::Ready);
        } else {
            self.connection.send();
            self.connection.make_room();
        }
        Ok(())
    }

    /// Handles NEWKEYS: from here on the server uses the new keys.
    fn renewed(&mut self) -> Result<(), End> {
        let (Keys::Awaited(cipher), Some(agreed)) =
            (std::mem::replace(&mut self.keys, Keys::Settled), &self.agreed)
        else {
            return Err(violation("NEWKEYS without a key exchange"));
        };
        self.opener.renew(*cipher, agreed.strict);
        self.keyed = true;
        self.host.key_exchanges.add();
        Ok(())
    }

    /// Handles EXT_INFO (RFC 8308).
    fn extensions(&mut self, mut reader: Reader<'_>) -> Result<(), End> {
        for _ in 0..reader.u32()? {
            let (name, value) = (reader.string()?, reader.string()?);
            if name == b"server-sig-algs" {
                let names = String::from_utf8_lossy(value);
                let names = names.split(',').map(str::to_owned).collect();
                // The first list stays in force: authentication may be using it already.
                let _ = self.connection.state.signatures.set(names);
            }
        }
        self.connection.state.reach(Phase::Informed);
        Ok(())
    }

    fn authentication(&mut self, message: &[u8]) -> Result<(), End> {
        if self.authenticated {
            return Err(violation("an authentication message after authentication"));
        }
        if message[0] == message::USERAUTH_SUCCESS {
            self.authenticated = true;
            if let Some(agreed) = &self.agreed {
                if agreed.inflate {
                    self.opener.decompress();
                }
                if agreed.deflate {
                    self.connection.output().compress();
                }
            }
        }
        // At most one response is awaited at a time.
        self.responses
            .try_send(Bytes::copy_from_slice(message))
            .map_err(|_| violation("unrequested authentication responses"))
    }

    /// Handles messages about channels, except data.
    fn channel(&mut self, message: &Bytes) -> Result<(), End> {
        let mut reader = Reader::new(&message[1..]);
        let id = reader.u32()?;
        let mut channels = self.connection.channels();
        let Some(entry) = channels.get(&id) else { return Ok(()) };
        let (line, inbox) = (Arc::clone(&entry.line), entry.inbox.clone());
        let mut reply = None;
        let event = match message[0] {
            message::CHANNEL_OPEN_CONFIRMATION => {
                let (event, close) = line.confirm(reader.u32()?, reader.u32()?, reader.u32()?)?;
                reply = close;
                Some(event)
            }
            message::CHANNEL_OPEN_FAILURE => {
                channels.remove(&id);
                Some(Event::Refused { reason: reader.u32()?, text: reader.text()? })
            }
            message::CHANNEL_WINDOW_ADJUST => {
                line.adjust(reader.u32()?)?;
                None
            }
            message::CHANNEL_EXTENDED_DATA => {
                reader.u32()?;
                let data = reader.string()?;
                line.receive(data.len())?;
                Some(Event::Stderr(Bytes::copy_from_slice(data)))
            }
            message::CHANNEL_CLOSE => {
                channels.remove(&id);
                reply = line.end();
                Some(Event::Close)
            }
            message::CHANNEL_REQUEST => {
                let (event, wants_reply) = request(&mut reader)?;
                if let Some(remote) = line.remote().filter(|_| wants_reply) {
                    let number = if event.is_some() {
                        message::CHANNEL_SUCCESS
                    } else {
                        message::CHANNEL_FAILURE
                    };
                    reply = Some(super::line::to(number, remote));
                }
                event
            }
            message::CHANNEL_FAILURE => Some(Event::Failure),
            // EOF: the close that follows ends the channel. Successful requests need no event.
            _ => None,
        };
        drop(channels);
        if let Some(reply) = reply {
            self.send(&reply)?;
        }
        if let Some(event) = event {
            line.deliver(&inbox, event)?;
        }
        Ok(())
    }

    /// Sends a message, unless the server has left too many responses unread.
    fn send(&self, message: &[u8]) -> Result<(), End> {
        let mut output = self.connection.output();
        output.check_responses()?;
        output.put(message);
        drop(output);
        self.connection.send();
        Ok(())
    }
}

/// Parses a CHANNEL_REQUEST about the remote program; the flag says whether the server wants a reply.
fn request(reader: &mut Reader<'_>) -> Result<(Option<Event>, bool), End> {
    let kind = reader.string()?;
    let wants_reply = reader.boolean()?;
    let event = match kind {
        b"exit-status" => {
            let status = reader.u32()?;
            Some(Event::Status {
                text: format!("ended with status {status}"),
                good: status == 0,
                // The shell's status for a program that is missing or cannot be run.
                never: [126, 127].contains(&status),
            })
        }
        b"exit-signal" => {
            let signal = printable(&reader.text()?);
            Some(Event::Status {
                text: format!("was ended by signal {signal}"),
                good: false,
                never: false,
            })
        }
        _ => None,
    };
    Ok((event, wants_reply))
}
