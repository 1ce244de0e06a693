//! One SSH connection: authentication, and channels that become SFTP sessions.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use haul_net::{Admitted, Running};
use russh::keys::{Algorithm, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, PublicKeyOffer, Session,
    VerifiedPublicKey, run_stream,
};
use russh::{Channel, ChannelId, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, Disconnect, Pty};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::client_log::{ClientLog, Observer, Proof};
use super::clients::{Client, Clients};
use super::credentials::Credentials;
use super::limits;
use super::line::Line;
use super::responses::{Closed, Outgoing};
use super::session::serve_channel;
use super::share::Share;
use super::transport;

/// Timeout for a channel to request its subsystem.
const GRACE: Duration = Duration::from_secs(60);

/// Timeout for a client to accept the end of a session, or to close when the server ends the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// RFC 4254, section 5.1.
const RESOURCE_SHORTAGE: u32 = 4;

/// RFC 4254, section 5.2.
const STDERR: u32 = 1;

const NO_SCP: &str = "haul: this server speaks SFTP, not the old protocol of scp; \
                      use sftp, or scp without -O (OpenSSH 9 or later)\n";
const NO_COMMANDS: &str = "haul: this server speaks SFTP only; it runs no commands\n";

/// Shared by all connections of a server.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) share: Arc<Share>,
    pub(super) clients: Arc<Clients>,
    pub(super) credentials: Credentials,
    pub(super) config: Arc<Config>,
    /// Timeout for authentication.
    pub(super) login_grace: Duration,
    pub(super) observer: Observer,
    /// One permit per session.
    pub(super) sessions: Arc<Semaphore>,
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) admitted: Admitted,
}

/// Serves a connection until it ends, or the server stops.
pub(super) async fn serve(
    served: Arc<Served>,
    Arrival { socket, from, admitted }: Arrival,
    mut server: Running,
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    // Disconnects the client when dropped, at the latest when this function returns.
    let connected = served.clients.add(StdTcpStream::from(socket.as_fd().try_clone_to_owned()?));
    let line = Line::new(socket);
    let client_log = Arc::new(ClientLog::new(served.observer.clone(), from, admitted));
    let login_grace = served.login_grace;
    let hopeless = Arc::new(Notify::new());
    let too_many_logins = Arc::new(Notify::new());
    let config = Arc::clone(&served.config);
    let connection = Connection {
        served,
        client: Arc::clone(&connected.0),
        client_log: Arc::clone(&client_log),
        hopeless: Arc::clone(&hopeless),
        refused_logins: 0,
        too_many_logins: Arc::clone(&too_many_logins),
        channels: Arc::new(Semaphore::new(limits::CHANNELS)),
        waiting: HashMap::new(),
    };
    let login_deadline = sleep(login_grace);
    tokio::pin!(login_deadline);
    let mut running = tokio::select! {
        // The error is not reported: the client does not speak SSH, or is gone already.
        running = run_stream(config, line, connection) => match running {
            Ok(running) => running,
            Err(_) => return Ok(()),
        },
        () = &mut login_deadline => {
            client_log.login_timed_out();
            return Ok(());
        }
        () = server.stopped() => return Ok(()),
    };
    let handle = running.handle();
    let mut is_checked = false;
    let (reason, words, within) = loop {
        tokio::select! {
            // The cause is not reported here: the client knows more about it.
            _ = &mut running => return Ok(()),
            () = hopeless.notified() => return Ok(()),
            () = too_many_logins.notified() => {
                let words = "Too many authentication failures";
                // The library refuses the login first, which it delays.
                let within = transport::REFUSAL + CLOSE_TIMEOUT;
                break (Disconnect::NoMoreAuthMethodsAvailable, words, within);
            }
            () = &mut login_deadline, if !is_checked => {
                if !client_log.has_logged_in() {
                    client_log.login_timed_out();
                    return Ok(());
                }
                is_checked = true;
            }
            () = server.stopped() => {
                break (Disconnect::ByApplication, "the server is stopping", CLOSE_TIMEOUT);
            }
        }
    };
    let closing = async {
        if handle.disconnect(reason, words.to_owned(), String::new()).await.is_ok() {
            drop(running.await);
        }
    };
    drop(timeout(within, closing).await);
    drop(connected);
    Ok(())
}

/// The callbacks of the SSH library for one connection.
struct Connection {
    served: Arc<Served>,
    client: Arc<Client>,
    client_log: Arc<ClientLog>,
    /// Notified by a session whose client does not accept its end within [`CLOSE_TIMEOUT`].
    hopeless: Arc<Notify>,
    refused_logins: usize,
    /// Notified after [`limits::LOGINS`] refused logins.
    too_many_logins: Arc<Notify>,
    /// One permit per channel.
    channels: Arc<Semaphore>,
    /// Channels that have not requested a subsystem yet.
    waiting: HashMap<ChannelId, oneshot::Sender<()>>,
}

impl Connection {
    /// The client does not learn whether the user or the credential is wrong. The observer gets both.
    fn refuse_login(&mut self, user: &str, with: Proof) -> Auth {
        if self.may_log_in() {
            self.client_log.refused(user, with);
            self.refused_logins += 1;
        }
        if !self.may_log_in() {
            self.too_many_logins.notify_one();
        }
        // All methods are offered again. With `None`, the library would no longer offer passwords after a wrong one.
        let proceed_with_methods = Some(self.served.config.methods.clone());
        Auth::Reject { proceed_with_methods, partial_success: false }
    }

    /// Whether logins are still checked. Later requests may have arrived before the connection is closed.
    const fn may_log_in(&self) -> bool {
        self.refused_logins < limits::LOGINS
    }

    fn allows_key(&self, user: &str, key: &PublicKey, algorithm: &Algorithm) -> bool {
        self.may_log_in() && self.served.credentials.allows_key(user, key, algorithm)
    }

    /// Sends the reason of a refusal, and closes the channel.
    fn refuse(
        &mut self,
        channel: ChannelId,
        words: &'static str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.waiting.remove(&channel);
        session.channel_success(channel)?;
        session.extended_data(channel, STDERR, Bytes::from_static(words.as_bytes()))?;
        session.exit_status_request(channel, 1)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        if !self.may_log_in() || !self.served.credentials.allows_password(user, password) {
            return Ok(self.refuse_login(user, Proof::Password));
        }
        self.client_log.logged_in(user, Proof::Password);
        Ok(Auth::Accept)
    }

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        if !self.allows_key(user, offer.public_key, offer.algorithm) {
            return Ok(self.refuse_login(user, Proof::key(offer.public_key)));
        }
        // The client may sign.
        Ok(Auth::Accept)
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        if !self.allows_key(user, key.public_key, key.algorithm) {
            return Ok(self.refuse_login(user, Proof::key(key.public_key)));
        }
        self.client_log.logged_in(user, Proof::key(key.public_key));
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let shortage = |reason| ChannelOpenFailure::Other { code: RESOURCE_SHORTAGE, reason };
        let Ok(of_connection) = Arc::clone(&self.channels).try_acquire_owned() else {
            let reason = format!("{} sessions are open on this connection", limits::CHANNELS);
            reply.reject(shortage(reason)).await;
            return Ok(());
        };
        let Ok(of_server) = Arc::clone(&self.served.sessions).try_acquire_owned() else {
            let sessions = self.served.share.options.sessions;
            let reason =
                format!("all {sessions} sessions of this server are taken; try again later");
            reply.reject(shortage(reason)).await;
            return Ok(());
        };
        let (start, started) = oneshot::channel();
        let id = channel.id();
        self.waiting.insert(id, start);
        let (incoming, _) = channel.split();
        let session = Channelled {
            share: Arc::clone(&self.served.share),
            clients: Arc::clone(&self.served.clients),
            client: Arc::clone(&self.client),
            incoming,
            outgoing: Responses {
                handle: session.handle(),
                channel: id,
                client: self.client.connected(),
            },
            hopeless: Arc::clone(&self.hopeless),
            _permits: [of_connection, of_server],
        };
        tokio::spawn(session.run(started));
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.waiting.remove(&channel);
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if name != "sftp" {
            return session.channel_failure(channel);
        }
        let Some(start) = self.waiting.remove(&channel) else {
            return session.channel_failure(channel);
        };
        session.channel_success(channel)?;
        // If the channel's task is gone, the channel is closed, too.
        let _ = start.send(());
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let program = command.split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_scp = program == b"scp" || program.ends_with(b"/scp");
        self.refuse(channel, if is_scp { NO_SCP } else { NO_COMMANDS }, session)
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.refuse(channel, NO_COMMANDS, session)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _col_width: u32,
        _row_height: u32,
        _pix_width: u32,
        _pix_height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }
}

/// An SFTP session on a channel.
struct Channelled {
    share: Arc<Share>,
    clients: Arc<Clients>,
    client: Arc<Client>,
    incoming: ChannelReadHalf,
    outgoing: Responses,
    hopeless: Arc<Notify>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl Channelled {
    async fn run(self, started: oneshot::Receiver<()>) {
        let Self { share, clients, client, mut incoming, outgoing, hopeless, _permits } = self;
        let Responses { handle, channel, .. } = outgoing.clone();
        if !is_started(&mut incoming, started).await {
            // Errors do not matter: the channel may be gone.
            let _ = handle.close(channel).await;
            return;
        }
        let incoming = Box::pin(stream::unfold(incoming, |mut incoming| async move {
            let piece = next(&mut incoming).await?;
            Some((piece, incoming))
        }));
        clients.settle().await;
        let in_session = client.begin_session();
        let outcome = serve_channel(share, incoming, outgoing).await;
        drop(in_session);
        // Errors are ignored: the connection may be gone.
        let closing = async {
            if let Err(error) = &outcome {
                drop(handle.extended_data(channel, STDERR, format!("haul: {error}\n")).await);
            }
            let _ = handle.exit_status_request(channel, u32::from(outcome.is_err())).await;
            let _ = handle.eof(channel).await;
            let _ = handle.close(channel).await;
        };
        if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            hopeless.notify_one();
        }
    }
}

/// Waits until the channel becomes a session; `false` if it does not within [`GRACE`], or if data or the end of the
/// channel arrives before.
async fn is_started(incoming: &mut ChannelReadHalf, mut started: oneshot::Receiver<()>) -> bool {
    let waits = async {
        loop {
            tokio::select! {
                biased;
                outcome = &mut started => return outcome.is_ok(),
                message = incoming.wait() => match message {
                    None | Some(ChannelMsg::Data { .. } | ChannelMsg::Eof | ChannelMsg::Close) => {
                        return false;
                    }
                    Some(_) => {}
                },
            }
        }
    };
    timeout(GRACE, waits).await.unwrap_or(false)
}

/// The next data of a channel; `None` at its end.
async fn next(incoming: &mut ChannelReadHalf) -> Option<Bytes> {
    loop {
        match incoming.wait().await? {
            ChannelMsg::Data { data } => return Some(data),
            ChannelMsg::Eof | ChannelMsg::Close => return None,
            _ => {}
        }
    }
}

/// Sends responses on a channel.
#[derive(Clone)]
struct Responses {
    handle: Handle,
    channel: ChannelId,
    client: Weak<()>,
}

impl Outgoing for Responses {
    async fn send(&mut self, bytes: Bytes) -> Result<(), Closed> {
        self.handle.data(self.channel, bytes).await.map_err(|_| Closed)
    }

    fn client(&self) -> Weak<()> {
        self.client.clone()
    }
}
