//! The task that reads: packets are deciphered, keys exchanged, and everything is handed to whom it
//! is for. It waits for the link alone, and for a person who has to judge a host key or is shown a
//! banner.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::channel::Event;
use super::cipher::Cipher;
use super::connection::Connection;
use super::end::{End, violation};
use super::identification::Identification;
use super::kex::{Exchange, Exchanged};
use super::link::Source;
use super::memory::Memory;
use super::negotiation::Agreed;
use super::packet::{Opened, Opener};
use super::read_buffer::ReadBuffer;
use super::state::{Greeter, Phase, one_line, printable};
use super::wire::{Put, Reader, message};
use super::{IDENTIFICATION, KeyExchanges, host_key};
use crate::ssh::host_key::HostKeyJudge;
use crate::ssh::known_hosts::KnownHosts;

/// Messages of the methods of key exchange (RFC 4250, 4.1.2).
const KEX_METHODS: std::ops::RangeInclusive<u8> = 30..=49;

/// Messages of the connection protocol (RFC 4254).
const CONNECTION: std::ops::RangeInclusive<u8> = message::GLOBAL_REQUEST..=message::CHANNEL_FAILURE;

/// Data up to this length is copied out of the buffer that it was read into: a short answer that
/// somebody keeps would keep all of the buffer.
const SHORT: usize = 4 << 10;

/// What is known of the host, and who has a say in whether it is the right one.
#[derive(Debug)]
pub struct Host {
    /// Who decides on the host key.
    pub judge: Arc<HostKeyJudge>,
    /// What the host keys are compared with.
    pub known: Arc<KnownHosts>,
    /// Where key exchanges are counted.
    pub key_exchanges: KeyExchanges,
    /// What the server has agreed on before.
    pub memory: Arc<Memory>,
}

/// When a silent server is asked whether it is there, and after how many questions it is given up.
#[derive(Debug, Clone, Copy)]
pub struct Alive {
    pub interval: Option<Duration>,
    pub questions: u32,
}

/// How far an exchange of keys is.
#[derive(Debug)]
enum Keys {
    /// None is under way, or only our offer is.
    Settled,
    /// Our half was sent.
    Begun(Box<Begun>),
    /// The server's next message is NEWKEYS.
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
    /// The key that was accepted.
    accepted: Option<Bytes>,
    host: Host,
    greeter: Arc<Greeter>,
    answers: mpsc::Sender<Bytes>,
    alive: Alive,
    unanswered: u32,
    skip: bool,
    /// Whether what comes is under the first keys, or later ones.
    keyed: bool,
    authenticated: bool,
    began: Instant,
}

impl Receiver {
    /// Of a connection whose beginning was sent.
    pub fn new(
        connection: Arc<Connection>,
        source: Source,
        host: Host,
        greeter: Arc<Greeter>,
        answers: mpsc::Sender<Bytes>,
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
            answers,
            alive,
            unanswered: 0,
            skip: false,
            keyed: false,
            authenticated: false,
            began: Instant::now(),
        }
    }

    /// Reads until the connection ends, and says how it did.
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
            let whole = self.opener.coming(&mut self.read_buffer.buffer)?.unwrap_or(0);
            self.fill(whole).await?;
        }
    }

    /// The first line that is one of SSH.
    async fn identification(&mut self) -> Result<String, End> {
        let mut lines = Identification::default();
        loop {
            if let Some(line) = lines.next(&mut self.read_buffer.buffer)? {
                return Ok(line);
            }
            if let Err(end) = self.fill(0).await {
                return Err(if lines.has_passed() { End::NotSsh } else { end });
            }
        }
    }

    /// Reads what there is, with room for a packet of `whole` bytes; asks the server whether it is
    /// there if nothing comes.
    async fn fill(&mut self, whole: usize) -> Result<(), End> {
        self.read_buffer.make_room(whole);
        let interval = self.alive.interval.filter(|_| self.connection.is_open());
        let read = loop {
            let reading = self.source.read(&mut self.read_buffer.buffer);
            let Some(interval) = interval else { break reading.await };
            match timeout(interval, reading).await {
                Ok(read) => break read,
                Err(_) if self.alive.questions > 0 && self.unanswered >= self.alive.questions => {
                    return Err(End::Silent);
                }
                Err(_) => {
                    self.unanswered += 1;
                    let mut question = vec![message::GLOBAL_REQUEST];
                    question.string(b"keepalive@openssh.com");
                    question.boolean(true);
                    self.answer(&question)?;
                }
            }
        };
        let read = read?;
        if read == 0 {
            return Err(End::Closed);
        }
        self.unanswered = 0;
        self.read_buffer.read(read);
        // Later ones are no first.
        let _ = self.connection.state.first_exchange.set(self.began.elapsed());
        Ok(())
    }

    /// The next whole message that was read.
    fn next_message(&mut self) -> Result<Option<Bytes>, End> {
        let Some(whole) = self.opener.coming(&mut self.read_buffer.buffer)? else {
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
        // A message is never empty.
        let number = message[0];
        let mut reader = Reader::new(&message[1..]);
        // Between its KEXINIT and its NEWKEYS a server sends nothing else (RFC 4253, 7.1). Some servers
        // go on with channels while keys are renewed (asyncssh), and clients take it: the packets are
        // protected by the keys before.
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
                return Err(End::Farewell { text: one_line(&printable(&reader.text()?)), fatal });
            }
            message::KEXINIT => return self.offered(&message),
            message::KEX_REPLY => return self.replied(&message).await,
            message::NEWKEYS => return self.renewed(),
            _ => {}
        }
        if exchanging {
            // Strictness is of the first exchange, in which an attacker can insert packets. What comes
            // before the server's offer is counted there.
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
                    self.answer(&[message::REQUEST_FAILURE])?;
                }
                Ok(())
            }
            message::CHANNEL_OPEN => {
                reader.string()?;
                // haul asks for nothing that makes a server open channels.
                let mut refusal = super::channel::to(message::CHANNEL_OPEN_FAILURE, reader.u32()?);
                refusal.u32(1);
                refusal.string(b"");
                refusal.string(b"");
                self.answer(&refusal)
            }
            message::CHANNEL_OPEN_CONFIRMATION..=message::CHANNEL_FAILURE => self.channel(&message),
            _ => {
                let mut unknown = vec![message::UNIMPLEMENTED];
                unknown.u32(self.opener.number().wrapping_sub(1));
                self.answer(&unknown)
            }
        }
    }

    /// Data, by far the most of what comes.
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

    /// The server's offer: ours goes out, if it has not, and our half of the exchange.
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
        // Only what the first exchange says of it counts.
        self.agreed = Some(Agreed { strict: strict.unwrap_or(agreed.strict), ..agreed });
        // Of its own, for what it was read into is used again.
        let theirs = Bytes::copy_from_slice(theirs);
        self.keys = Keys::Begun(Box::new(Begun { exchange, ours, theirs }));
        Ok(())
    }

    /// The server's half: the host key is verified and judged, and the keys are there.
    async fn replied(&mut self, message: &Bytes) -> Result<(), End> {
        let (Keys::Begun(begun), Some(agreed)) =
            (std::mem::replace(&mut self.keys, Keys::Settled), self.agreed.clone())
        else {
            return Err(violation("a reply to no key exchange"));
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
            let _asking = state.asking();
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
            // NEWKEYS leaves in one flight with what is sent next: authentication.
            state.reach(Phase::Ready);
        } else {
            self.connection.send();
            self.connection.make_room();
        }
        Ok(())
    }

    /// What the server sends from here on is under the new keys.
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

    /// What a server says about itself (RFC 8308).
    fn extensions(&mut self, mut reader: Reader<'_>) -> Result<(), End> {
        for _ in 0..reader.u32()? {
            let (name, value) = (reader.string()?, reader.string()?);
            if name == b"server-sig-algs" {
                let names = String::from_utf8_lossy(value);
                let names = names.split(',').map(str::to_owned).collect();
                // The first is the one that authentication may use already.
                let _ = self.connection.state.signatures.set(names);
            }
        }
        self.connection.state.reach(Phase::Informed);
        Ok(())
    }

    fn authentication(&mut self, message: &[u8]) -> Result<(), End> {
        if self.authenticated {
            return Err(violation("authentication after it was over"));
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
        // One answer is waited for at a time.
        self.answers
            .try_send(Bytes::copy_from_slice(message))
            .map_err(|_| violation("responses to no authentication request"))
    }

    /// Everything about channels but data.
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
                    reply = Some(super::channel::to(number, remote));
                }
                event
            }
            message::CHANNEL_FAILURE => Some(Event::Failure),
            // What comes is over when it is closed; a request that was granted needs no word.
            _ => None,
        };
        drop(channels);
        if let Some(reply) = reply {
            self.answer(&reply)?;
        }
        if let Some(event) = event {
            line.deliver(&inbox, event)?;
        }
        Ok(())
    }

    fn answer(&self, message: &[u8]) -> Result<(), End> {
        let mut output = self.connection.output();
        output.check_answers()?;
        output.put(message);
        drop(output);
        self.connection.send();
        Ok(())
    }
}

/// What a server says of the program on a channel, and whether it wants an answer.
fn request(reader: &mut Reader<'_>) -> Result<(Option<Event>, bool), End> {
    let kind = reader.string()?;
    let wants_reply = reader.boolean()?;
    let event = match kind {
        b"exit-status" => {
            let status = reader.u32()?;
            Some(Event::Status {
                text: format!("ended with status {status}"),
                good: status == 0,
                // What the shell says of a program that is missing or cannot be run.
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
