//! The sharer's side: codes at a bridge, one after the other, until one is used or expires, there were too many wrong
//! guesses, or the bridge remains lost.
//!
//! ```text
//! connect → Offer → number → code → Incoming → exchange (responder) → granted: end
//!    ↑                                 │           │
//!    ├── lost: pause, same code ───────┘           │
//!    └── wrong: a new code, with another number ───┘
//! ```

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use haul_net::Observer;
use haul_storage::{Error, Result, Retry};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use zeroize::Zeroizing;

use super::super::channel::lost;
use super::super::messages::{
    FromBridge, Incoming, MIN_VERSION, NUMBER_MAX, Offer, VERSION, from_bridge, to_bridge,
};
use super::super::preamble::random_id;
use super::super::registration::{PAUSES, connect, jittered};
use super::super::room::TokenKey;
use super::super::signal::{KEEPALIVE, PATIENCE, SILENCE, Signalling, key, refusal, unexpected};
use super::responder::{CodeResponder, Verdict};
use super::spoken::Code;
use crate::ticket::{BridgeAddress, Ticket};
use crate::wire::convert::fixed;

/// How long a code is valid.
const LIFETIME: Duration = Duration::from_secs(600);

/// After this many wrong guesses there is no new code. Each had a chance of 1 in 2^18.
const GUESSES: u32 = 5;

/// Maximum exchanges in progress. Further ones are dropped.
const EXCHANGES: usize = 4;

/// How a code has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodeEvent {
    /// A receiver was sent the ticket. The code is used up.
    Used,
    /// A receiver had wrong words. The code is not valid any more.
    Guessed {
        /// The code that is valid instead; none after too many guesses, or if a new one could not be offered.
        next: Option<Code>,
    },
    /// No receiver has used the code in time.
    Expired,
    /// The connection to the bridge was lost, and the code could not be offered again.
    Lost {
        /// The reason.
        cause: String,
    },
}

/// A ticket that is offered by a code at a bridge. The code ends when this is dropped.
pub struct CodeOffer {
    task: JoinHandle<()>,
}

/// Options of an offer.
#[derive(Debug)]
pub struct CodeOfferBuilder {
    bridge: BridgeAddress,
    ticket: Ticket,
    token: Option<haul_net::Secret>,
    lifetime: Duration,
    observer: Observer<CodeEvent>,
}

impl CodeOffer {
    /// An offer of a ticket at `bridge`, whose key must be known.
    pub fn builder(bridge: BridgeAddress, ticket: Ticket) -> CodeOfferBuilder {
        let (lifetime, observer) = (LIFETIME, Observer::default());
        CodeOfferBuilder { bridge, ticket, token: None, lifetime, observer }
    }
}

impl Drop for CodeOffer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for CodeOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeOffer")
    }
}

impl CodeOfferBuilder {
    /// The bridge's token, if it requires one.
    #[must_use]
    pub fn token(mut self, token: Option<haul_net::Secret>) -> Self {
        self.token = token;
        self
    }

    /// How long a code is valid; 10 minutes by default.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Sets a callback for events: with the receiver's address as the bridge sees it, or that of the bridge. It must
    /// not block.
    #[must_use]
    pub fn observer(
        mut self,
        callback: impl Fn(haul_net::ClientEvent<CodeEvent>) + Send + Sync + 'static,
    ) -> Self {
        self.observer = Observer::new(callback);
        self
    }

    /// Offers the ticket, and returns the first code.
    ///
    /// Must be called within a tokio runtime, on which the offer runs.
    ///
    /// # Errors
    /// If the bridge's key is unknown, or the bridge cannot be reached, has another key, or refuses the offer.
    pub async fn start(self) -> Result<(CodeOffer, Code)> {
        key(&self.bridge)?;
        let sharer = Sharer {
            token: self.token.map(|token| TokenKey::new(token.expose())).transpose()?,
            ticket: Zeroizing::new(self.ticket.to_string()),
            bridge: self.bridge,
            lifetime: self.lifetime,
            observer: self.observer,
            exchanges: Arc::new(Semaphore::new(EXCHANGES)),
        };
        let current = Box::pin(sharer.fresh()).await?;
        let code = current.responder.0.code().clone();
        Ok((CodeOffer { task: tokio::spawn(sharer.run(current)) }, code))
    }
}

/// The state of the sharer's task.
struct Sharer {
    bridge: BridgeAddress,
    token: Option<TokenKey>,
    ticket: Zeroizing<String>,
    lifetime: Duration,
    observer: Observer<CodeEvent>,
    exchanges: Arc<Semaphore>,
}

/// The code that is valid at present.
struct Current {
    signalling: Signalling,
    /// With this key, the sharer gets the same number from the bridge again.
    key: Zeroizing<[u8; 32]>,
    responder: Valid,
    verdicts: UnboundedReceiver<(Verdict, SocketAddr)>,
    until: Until,
}

impl Current {
    /// Ends the code, and releases its number.
    async fn leave(self) {
        self.responder.0.end();
        self.signalling.channel.close().await;
    }
}

/// The code is valid until this is dropped: exchanges may outlive the offer.
struct Valid(Arc<CodeResponder>);

impl Drop for Valid {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// When a code expires: by the timer or by the clock, whichever is earlier. The timer stands still while the machine is
/// suspended, and the clock may be set.
#[derive(Debug, Clone, Copy)]
struct Until {
    timer: Instant,
    clock: SystemTime,
}

impl Until {
    fn after(lifetime: Duration) -> Self {
        Self { timer: Instant::now() + lifetime, clock: SystemTime::now() + lifetime }
    }

    fn is_over(&self, timer: Instant, clock: SystemTime) -> bool {
        timer >= self.timer || clock >= self.clock
    }

    fn is_over_now(&self) -> bool {
        self.is_over(Instant::now(), SystemTime::now())
    }
}

/// Why the wait for receivers of a code has ended.
enum End {
    Verdict(Verdict, SocketAddr),
    Expired,
    Lost(Error),
}

impl Sharer {
    async fn run(self, mut current: Current) {
        let mut guesses = 0;
        loop {
            let at = current.signalling.at;
            match self.serve(&mut current).await {
                End::Verdict(Verdict::Granted, from) => {
                    current.leave().await;
                    return self.observer.notify(from, CodeEvent::Used);
                }
                End::Verdict(Verdict::Wrong, from) => {
                    guesses += 1;
                    let next = match guesses < GUESSES {
                        true => Box::pin(self.fresh()).await.ok(),
                        false => None,
                    };
                    let code = next.as_ref().map(|next| next.responder.0.code().clone());
                    match next {
                        Some(next) => std::mem::replace(&mut current, next).leave().await,
                        None => {
                            current.leave().await;
                            return self.observer.notify(from, CodeEvent::Guessed { next: code });
                        }
                    }
                    self.observer.notify(from, CodeEvent::Guessed { next: code });
                }
                End::Expired => {
                    // A receiver may have the ticket without having confirmed it.
                    let granted = current.responder.0.granted();
                    current.leave().await;
                    return match granted {
                        Some(from) => self.observer.notify(from, CodeEvent::Used),
                        None => self.observer.notify(at, CodeEvent::Expired),
                    };
                }
                End::Lost(error) => {
                    if let Err(error) = self.restore(&mut current, error).await {
                        current.responder.0.end();
                        // A receiver may have got the ticket meanwhile, or have it without having confirmed it.
                        return match current.responder.0.granted() {
                            Some(from) => self.observer.notify(from, CodeEvent::Used),
                            None => {
                                let cause = error.to_string();
                                self.observer.notify(at, CodeEvent::Lost { cause });
                            }
                        };
                    }
                }
            }
        }
    }

    /// A new code, with a number that the bridge chooses.
    async fn fresh(&self) -> Result<Current> {
        let key = Zeroizing::new(random_id()?);
        let (signalling, number) = self.offer(0, &key).await?;
        let (sender, verdicts) = unbounded_channel();
        let responder = CodeResponder::new(Code::generate(number)?, self.ticket.clone(), sender)?;
        let (responder, until) = (Valid(Arc::new(responder)), Until::after(self.lifetime));
        Ok(Current { signalling, key, responder, verdicts, until })
    }

    /// Offers the same code again, until it expires. `error` is why the bridge was lost.
    async fn restore(&self, current: &mut Current, mut error: Error) -> Result<()> {
        let number = current.responder.0.code().number();
        let mut pause = PAUSES.0;
        loop {
            let wait = jittered(pause);
            if current.until.is_over(Instant::now() + wait, SystemTime::now() + wait) {
                return Err(error);
            }
            sleep(wait).await;
            if current.until.is_over_now() {
                return Err(error);
            }
            pause = (pause * 2).min(PAUSES.1);
            match Box::pin(self.offer(number, &current.key)).await {
                Ok((signalling, _)) => {
                    current.signalling = signalling;
                    return Ok(());
                }
                Err(next) if next.retry() == Retry::Never => return Err(next),
                Err(next) => error = next,
            }
        }
    }

    /// Connects and requests a number: this one, or any if it is 0.
    async fn offer(&self, number: u32, key: &[u8; 32]) -> Result<(Signalling, u32)> {
        let mut signalling = Box::pin(Signalling::open(&self.bridge)).await?;
        let request = Offer {
            min_version: MIN_VERSION,
            max_version: VERSION,
            token_proof: signalling.token_proof(self.token.as_ref()),
            number,
            key: Bytes::copy_from_slice(key),
        };
        let response = signalling.request(to_bridge::Body::Offer(request)).await;
        match response.map_err(|error| error.at(&self.bridge))? {
            from_bridge::Body::Offered(offered) => {
                let is_valid = (1..=NUMBER_MAX).contains(&offered.number)
                    && (number == 0 || number == offered.number);
                match is_valid {
                    true => Ok((signalling, offered.number)),
                    false => Err(unexpected(&self.bridge)),
                }
            }
            from_bridge::Body::Refused(refused) => Err(refusal(&refused, &self.bridge)),
            _ => Err(unexpected(&self.bridge)),
        }
    }

    /// Responds to receivers until there is a verdict, the code expires, or the bridge is lost.
    async fn serve(&self, current: &mut Current) -> End {
        let mut last_received = Instant::now();
        let mut keepalive = interval(KEEPALIVE);
        // After a suspension, one ping is enough.
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Verdicts first: no exchange is started after a wrong guess.
                biased;
                Some((verdict, from)) = current.verdicts.recv() => {
                    return End::Verdict(verdict, from);
                }
                () = sleep_until(current.until.timer) => return End::Expired,
                message = current.signalling.channel.next::<FromBridge>() => {
                    last_received = Instant::now();
                    let body = match message {
                        Ok(Some(message)) => message.body,
                        Ok(None) => return End::Lost(lost(&io::ErrorKind::UnexpectedEof.into())),
                        Err(error) => return End::Lost(error),
                    };
                    match body {
                        // This machine may just have been resumed.
                        _ if current.until.is_over_now() => return End::Expired,
                        Some(from_bridge::Body::Incoming(incoming)) => {
                            self.open(&incoming, current);
                        }
                        Some(from_bridge::Body::Refused(refused)) => {
                            return End::Lost(refusal(&refused, &self.bridge));
                        }
                        _ => {}
                    }
                }
                _ = keepalive.tick() => {
                    if current.until.is_over_now() {
                        return End::Expired;
                    }
                    if last_received.elapsed() > SILENCE {
                        return End::Lost(lost(&io::ErrorKind::TimedOut.into()));
                    }
                    if let Err(error) = current.signalling.ping().await {
                        return End::Lost(error);
                    }
                }
            }
        }
    }

    /// Opens the data connection of a receiver, and runs the exchange on it.
    fn open(&self, incoming: &Incoming, current: &Current) {
        let at = current.signalling.at;
        let from = incoming.joiner_observed.parse().unwrap_or(at);
        for id in &incoming.connections {
            let Ok(id) = fixed(id, "connection") else { continue };
            // Beyond the limit, no connection is opened: the receiver fails, and may try again.
            let Ok(permit) = Arc::clone(&self.exchanges).try_acquire_owned() else { return };
            let responder = Arc::clone(&current.responder.0);
            tokio::spawn(async move {
                if let Ok(Ok(stream)) = timeout(PATIENCE, connect(at, id)).await {
                    // A failure without a verdict leaves the code valid.
                    drop(Box::pin(responder.serve(stream, from)).await);
                }
                drop(permit);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, the lifetime restarted when the bridge was lost, and did not include suspensions.
    #[test]
    fn a_code_expires_by_the_timer_and_by_the_clock() {
        let (timer, clock) = (Instant::now(), SystemTime::now());
        let until = Until::after(LIFETIME);
        let (earlier, later) = (Duration::from_secs(599), Duration::from_secs(601));
        assert!(!until.is_over(timer + earlier, clock + earlier));
        assert!(until.is_over(timer + later, clock - later));
        assert!(until.is_over(timer, clock + later));
    }

    #[test]
    fn an_exchange_that_outlives_its_offer_finds_the_code_ended() {
        let code = "7-orbit-candle".parse().unwrap();
        let responder =
            CodeResponder::new(code, Zeroizing::default(), unbounded_channel().0).unwrap();
        let responder = Arc::new(responder);
        drop(Valid(Arc::clone(&responder)));
        assert!(!responder.end());
    }
}
