//! The receiver's side of an exchange: it fetches the ticket for a code.

use std::io;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::super::channel::{Channel, lost};
use super::super::messages::{
    MIN_VERSION, Meet, Refusal, Refused, VERSION, from_bridge, to_bridge,
};
use super::super::preamble::random_id;
use super::super::signal::{PATIENCE, Signalling, introduce, key, refusal, tcp, unexpected};
use super::keys::{Half, Side};
use super::messages::{
    self, CodeRefusal, Confirm, FromSharer, Start, ToSharer, from_sharer, to_sharer,
};
use super::responder::unexpected_message;
use super::spoken::Code;
use crate::identity::Identity;
use crate::ticket::{BridgeAddress, Ticket};
use crate::tls;
use crate::wire::convert::clipped;
use crate::wire::messages::Empty;

/// The hint for a code that cannot be used.
const NEW_CODE_HINT: &str = "ask the sharer for the code that it shows now";

/// Fetches the ticket of a sharer that offers `code` at `bridge`. This uses the code up, even if the words are wrong.
///
/// Must be called within a tokio runtime.
///
/// # Errors
/// `NotFound` if no sharer has the code's number or the code has ended, `Unauthenticated` if the words are wrong or the
/// other side does not know them, `Busy` after too many attempts in a minute; or if the bridge cannot be reached or its
/// key is unknown.
pub async fn fetch(bridge: &BridgeAddress, code: &Code) -> Result<Ticket> {
    let at = || format!("code {}", code.number());
    key(bridge)?;
    let (signalling, data) =
        tokio::try_join!(Box::pin(Signalling::open(bridge)), Box::pin(tcp(bridge)))?;
    let (mut signalling, mut stream) = (signalling, data.stream);
    let id = random_id()?;
    introduce(&mut stream, &id).await.map_err(|error| error.at(bridge))?;
    let request = Meet {
        min_version: MIN_VERSION,
        max_version: VERSION,
        number: code.number(),
        connection: Bytes::copy_from_slice(&id),
    };
    let response = signalling.request(to_bridge::Body::Meet(request)).await;
    match response.map_err(|error| error.at(bridge))? {
        from_bridge::Body::Joined(_) => {}
        from_bridge::Body::Refused(refused) if is_unknown(&refused) => {
            return Err(Error::new(ErrorKind::NotFound, "use the code")
                .at(at())
                .because(format!("no sharer has this number at the bridge {bridge}"))
                .hinting(format!("a code works once, for 10 minutes: {NEW_CODE_HINT}")));
        }
        from_bridge::Body::Refused(refused) => return Err(refusal(&refused, bridge)),
        _ => return Err(unexpected(bridge)),
    }
    signalling.channel.close().await;
    let received = timeout(PATIENCE, Box::pin(receive(stream, code))).await;
    let received = received.unwrap_or_else(|_| Err(lost(&io::ErrorKind::TimedOut.into())));
    received.map_err(|error| error.at(at()))
}

fn is_unknown(refused: &Refused) -> bool {
    Refusal::of(refused.code) == Some(Refusal::Room)
}

/// The exchange with the sharer at the other end of a connection.
pub(super) async fn receive<S>(stream: S, code: &Code) -> Result<Ticket>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let identity = Identity::ephemeral()?;
    let config = tls::code_client_config(identity.pkcs8(), &identity.spki())?;
    let stream = tls::connect(stream, config, PATIENCE).await;
    let stream = stream.map_err(|error| tls::explain(error, "the sharer"))?;
    let half = Half::start(Side::Receiver, code, tls::exporter(stream.get_ref().1)?);
    let mut channel = Channel::new(stream);
    let start = Start {
        min_version: messages::MIN_VERSION,
        max_version: messages::VERSION,
        share: half.share(),
    };
    send(&mut channel, to_sharer::Body::Start(start)).await?;
    let from_sharer::Body::Reply(reply) = next(&mut channel).await? else {
        return Err(unexpected_message());
    };
    let keys = half.finish(&reply.share)?;
    let mac = Bytes::copy_from_slice(&keys.mac(Side::Receiver));
    send(&mut channel, to_sharer::Body::Confirm(Confirm { mac })).await?;
    let from_sharer::Body::Granted(granted) = next(&mut channel).await? else {
        return Err(unexpected_message());
    };
    if !keys.verify(Side::Sharer, &granted.mac) {
        return Err(Error::new(ErrorKind::Unauthenticated, "use the code")
            .because("the other side does not know the code")
            .hinting(NEW_CODE_HINT));
    }
    let text = keys.open(&granted.ticket)?;
    let ticket = text.parse::<Ticket>().map_err(|error| {
        Error::new(ErrorKind::Protocol, "use the code").because(format!("its ticket: {error}"))
    })?;
    send(&mut channel, to_sharer::Body::Received(Empty {})).await?;
    channel.close().await;
    Ok(ticket)
}

/// The next message of the sharer; an error if it refuses.
async fn next<S>(channel: &mut Channel<S>) -> Result<from_sharer::Body>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match channel.next::<FromSharer>().await? {
        Some(FromSharer { body: Some(from_sharer::Body::Refused(refused)) }) => {
            Err(refused_by_sharer(&refused))
        }
        Some(FromSharer { body: Some(body) }) => Ok(body),
        Some(_) => Err(unexpected_message()),
        None => Err(lost(&io::ErrorKind::UnexpectedEof.into())),
    }
}

async fn send<S>(channel: &mut Channel<S>, body: to_sharer::Body) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    channel.send(&ToSharer { body: Some(body) }).await
}

/// The error of a refusal by the sharer. Never retried: the next attempt needs another code.
fn refused_by_sharer(refused: &Refused) -> Error {
    let refusal = CodeRefusal::of(refused.code);
    let (kind, cause) = match refusal {
        Some(CodeRefusal::Wrong) => (
            ErrorKind::Unauthenticated,
            "the code is wrong, or someone is between the two machines; it is not valid any more"
                .to_owned(),
        ),
        Some(CodeRefusal::Ended) => (ErrorKind::NotFound, clipped(&refused.text)),
        _ => (ErrorKind::Protocol, clipped(&refused.text)),
    };
    let error = Error::new(kind, "use the code").because(cause).with_retry(Retry::Never);
    match refusal {
        Some(CodeRefusal::Wrong | CodeRefusal::Ended) => error.hinting(NEW_CODE_HINT),
        _ => error,
    }
}
