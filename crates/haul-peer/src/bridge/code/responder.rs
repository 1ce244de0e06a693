//! The sharer's side of an exchange: it sends the ticket to the first receiver that knows the code.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haul_net::network;
use haul_storage::{Error, ErrorKind, Result};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::super::channel::{Channel, lost};
use super::super::messages::Refused;
use super::keys::{Half, Keys, Side};
use super::messages::{
    CodeRefusal, FromSharer, Granted, MIN_VERSION, Reply, ToSharer, VERSION, from_sharer, to_sharer,
};
use super::spoken::Code;
use crate::identity::Identity;
use crate::tls;

/// Time limit for the handshake, and again for the exchange.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a code has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A receiver that knows the code was sent the ticket.
    Granted,
    /// A receiver has made a wrong guess.
    Wrong,
}

#[derive(Debug, Default)]
struct State {
    has_ended: bool,
    /// The first receiver that has proved that it knows the code, and is sent the ticket.
    granted: Option<SocketAddr>,
}

/// Serves the receivers of one code.
pub(super) struct CodeResponder {
    code: Code,
    ticket: Zeroizing<String>,
    tls: Arc<ServerConfig>,
    state: Mutex<State>,
    verdicts: UnboundedSender<(Verdict, SocketAddr)>,
}

impl CodeResponder {
    /// Sends the verdict to `verdicts` as soon as there is one; from then on the code is no longer valid.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub(super) fn new(
        code: Code,
        ticket: Zeroizing<String>,
        verdicts: UnboundedSender<(Verdict, SocketAddr)>,
    ) -> Result<Self> {
        // Not the sharer's own identity: a client that has only the number must not recognize the sharer.
        let identity = Identity::ephemeral()?;
        let tls = tls::code_server_config(identity.pkcs8(), &identity.spki())?;
        Ok(Self { code, ticket, tls, state: Mutex::default(), verdicts })
    }

    pub(super) const fn code(&self) -> &Code {
        &self.code
    }

    /// Ends the code. Returns whether it was valid.
    pub(super) fn end(&self) -> bool {
        !std::mem::replace(&mut self.state().has_ended, true)
    }

    /// The receiver that was sent the ticket.
    pub(super) fn granted(&self) -> Option<SocketAddr> {
        self.state().granted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the exchange with a receiver at `from`.
    ///
    /// # Errors
    /// If the connection is lost or is not of this protocol. Before the receiver's proof, that is not a guess.
    pub(super) async fn serve<S>(&self, stream: S, from: SocketAddr) -> Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = tls::accept(stream, Arc::clone(&self.tls), PATIENCE).await;
        let stream = stream.map_err(|error| tls::explain(error, &from.to_string()))?;
        let exporter = tls::exporter(stream.get_ref().1)?;
        let mut channel = Channel::new(stream);
        let outcome = timeout(PATIENCE, self.exchange(&mut channel, exporter, from)).await;
        outcome.unwrap_or_else(|_| Err(lost(&io::ErrorKind::TimedOut.into())))?;
        channel.close().await;
        Ok(())
    }

    async fn exchange<S>(
        &self,
        channel: &mut Channel<S>,
        exporter: [u8; 32],
        from: SocketAddr,
    ) -> Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Some(to_sharer::Body::Start(start)) = next(channel).await? else {
            return Err(unexpected_message());
        };
        if start.min_version > VERSION || start.max_version < MIN_VERSION {
            return refuse(channel, CodeRefusal::Version).await;
        }
        let half = Half::start(Side::Sharer, &self.code, exporter);
        let share = half.share();
        let keys = half.finish(&start.share)?;
        send(channel, from_sharer::Body::Reply(Reply { share })).await?;
        let Some(to_sharer::Body::Confirm(confirm)) = next(channel).await? else {
            // The receiver has learnt nothing, and may try again.
            return Err(unexpected_message());
        };
        if let Some(refusal) = self.judge(&keys, &confirm.mac, from) {
            return refuse(channel, refusal).await;
        }
        let mac = Bytes::copy_from_slice(&keys.mac(Side::Sharer));
        let ticket = keys.seal(&self.ticket)?;
        send(channel, from_sharer::Body::Granted(Granted { mac, ticket })).await?;
        // If the ticket has not arrived, the receiver tries again.
        let Some(to_sharer::Body::Received(_)) = next(channel).await? else {
            return Err(unexpected_message());
        };
        if self.end() {
            self.report(Verdict::Granted, from);
        }
        Ok(())
    }

    /// Why a receiver with this proof is refused; `None` if it gets the ticket. One wrong proof ends the code, since it
    /// tests one of 2^18 word pairs. A correct one from a second network ends it, too: one of the two receivers has
    /// overheard the code, and the sharer must notice. A receiver that did not get its ticket may try again.
    fn judge(&self, keys: &Keys, mac: &[u8], from: SocketAddr) -> Option<CodeRefusal> {
        let mut state = self.state();
        if state.has_ended {
            return Some(CodeRefusal::Ended);
        }
        if !keys.verify(Side::Receiver, mac) {
            state.has_ended = true;
            self.report(Verdict::Wrong, from);
            return Some(CodeRefusal::Wrong);
        }
        let first = *state.granted.get_or_insert(from);
        if network(first.ip()) == network(from.ip()) {
            return None;
        }
        state.has_ended = true;
        self.report(Verdict::Granted, first);
        Some(CodeRefusal::Ended)
    }

    fn report(&self, verdict: Verdict, from: SocketAddr) {
        // The offer may have been dropped.
        let _ = self.verdicts.send((verdict, from));
    }
}

async fn next<S>(channel: &mut Channel<S>) -> Result<Option<to_sharer::Body>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    Ok(channel.next::<ToSharer>().await?.and_then(|message| message.body))
}

async fn send<S>(channel: &mut Channel<S>, body: from_sharer::Body) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    channel.send(&FromSharer { body: Some(body) }).await
}

async fn refuse<S>(channel: &mut Channel<S>, refusal: CodeRefusal) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (code, text) = (refusal.number(), refusal.text().to_owned());
    send(channel, from_sharer::Body::Refused(Refused { code, text })).await
}

/// The error of a message that does not follow the protocol.
pub(super) fn unexpected_message() -> Error {
    Error::new(ErrorKind::Protocol, "use the code")
        .because("the other side sent an unexpected message")
}
