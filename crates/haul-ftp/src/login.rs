//! Opens a lane: connection, TLS, login, and the server's features.
//!
//! ```text
//! TCP → 220 → AUTH TLS → handshake → PBSZ, PROT, USER → PASS → FEAT, OPTS, TYPE, SYST, PWD
//! ```
//!
//! Each step is one RTT (a TLS 1.2 handshake is two). FEAT, SYST and PWD are sent on the first lane only;
//! later lanes send PBSZ, PROT, USER, PASS, TYPE and OPTS in one step, if the server accepts several commands
//! at once.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haul_net::{
    DialOptions, Dialled, HostWaits, MAX_PROMPTS, PasswordSource, Prompter, RttGauge, Secret,
    TRY_AGAIN, dial, tls, with_port,
};
use haul_storage::{Error, ErrorKind, Result, Retry};
use rustls::ClientConfig;
use tokio::sync::Mutex;

use crate::control::Control;
use crate::error::{is_too_many, protocol, refused};
use crate::learnt::{Learnt, Lesson};
use crate::options::{FtpOptions, TlsMode};
use crate::server::{Server, pipelines};
use crate::session::{Peer, Session};
use crate::stream::{Patience, Security, Stream};
use crate::wire::{Command, Features, Reply, quoted};

const ANONYMOUS: &str = "anonymous";
/// The customary password names the client. Some servers require the `@`.
const ANONYMOUS_PASSWORD: &str = "haul@";

/// How lanes to one host are opened.
#[derive(Debug)]
pub(crate) struct Login {
    host: String,
    port: u16,
    options: FtpOptions,
    prompter: Arc<dyn Prompter>,
    /// The password that the server has accepted.
    password: OnceLock<Secret>,
    /// Held by the lane that tries passwords, so that the others wait.
    trial: Mutex<Trial>,
    config: OnceLock<Arc<ClientConfig>>,
    /// Learnt by the first lane.
    server: OnceLock<Arc<Server>>,
    /// The server refused TLS; connections continue in plain text.
    offers_no_tls: AtomicBool,
    /// TLS was negotiated: from then on it is required.
    offers_tls: AtomicBool,
    waits: HostWaits,
    learnt: Arc<Learnt>,
}

/// The state of passwords until one is accepted.
#[derive(Debug, Default)]
struct Trial {
    /// How often the user was prompted.
    prompts: u32,
    /// The last typed password was refused, and the user may try again.
    is_mistyped: bool,
    /// Why no further password is tried.
    refused: Option<String>,
}

/// A new lane, and the RTT of its handshake.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) rtt: Duration,
}

impl Login {
    pub(crate) fn new(
        host: String,
        port: Option<u16>,
        options: FtpOptions,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        let port = port.unwrap_or(options.default_port());
        let waits = options.waits.of(with_port(&host, port));
        Self {
            host,
            port,
            options,
            prompter,
            password: OnceLock::new(),
            trial: Mutex::default(),
            config: OnceLock::new(),
            server: OnceLock::new(),
            offers_no_tls: AtomicBool::new(false),
            offers_tls: AtomicBool::new(false),
            waits,
            learnt: Arc::default(),
        }
    }

    /// The host as errors name it.
    pub(crate) fn name(&self) -> String {
        let standard = self.port == self.options.default_port();
        with_port(&self.host, if standard { 0 } else { self.port })
    }

    /// The server, known once a lane was open.
    pub(crate) fn known_server(&self) -> Option<Arc<Server>> {
        self.server.get().cloned()
    }

    /// What was learnt about the server.
    pub(crate) const fn learnt(&self) -> &Arc<Learnt> {
        &self.learnt
    }

    /// Opens a lane. Retries if something was learnt from a transient failure, or if the user mistyped the
    /// password and may try again.
    pub(crate) async fn open(&self) -> Result<Opened> {
        let mut lessons = self.learnt.mark();
        loop {
            match self.try_open().await {
                // Only transient errors: another refused login could lock the account.
                Err(error) if error.retry() == Retry::Later && self.learnt.since(&mut lessons) => {}
                // On a new connection: some servers close one after a failed login.
                Err(error)
                    if error.kind() == ErrorKind::Unauthenticated && self.may_retype().await => {}
                outcome => return outcome.map_err(|error| error.at(self.name())),
            }
        }
    }

    async fn try_open(&self) -> Result<Opened> {
        let silence = self.waits.silence();
        let options = DialOptions {
            family: self.options.reach.family,
            limit: Some(self.options.reach.limit),
            silence: Some(silence),
            proxy: self.options.proxy.clone(),
            ..DialOptions::default()
        };
        let dialled = dial(&self.host, self.port, &options);
        let dialled = self.waits.watch(|| "connection".to_owned(), dialled).await;
        let Dialled { stream, rtt } = dialled?;
        let address = stream.peer_addr().map_err(|error| Error::from_io("connect", error))?;
        let peer = match &self.options.proxy {
            None => Peer::Direct(address),
            Some(_) => Peer::Through(Arc::from(self.host.as_str()), options),
        };
        let gauge = RttGauge::of(&stream).map_err(|error| Error::from_io("connect", error))?;
        let patience = Patience { silence, waits: self.waits.clone() };
        let implicit = self.options.is_implicit(self.port);
        let mut security = None;
        let mut stream = Stream::plain(stream, patience.clone());
        if implicit {
            let secured = security.insert(self.security()?).secure(stream).await;
            stream = secured.map_err(|error| tls::explain(error, &self.host))?;
        }
        let mut control = Control::new(stream, Arc::clone(&self.learnt));
        let greeting = control.last_reply().await?;
        if !greeting.is_done() {
            return Err(refused("connect", &greeting));
        }
        if greeting.text().contains("Microsoft FTP Service") {
            // lftp lists it as a server that loses pipelined commands (`ftp:auto-sync-mode`).
            self.learnt.learn(Lesson::OneAtATime);
        }
        if pipelines(&greeting.text()) {
            control.pipelines();
        }
        if !implicit {
            security = self.secure(&mut control).await?;
        }
        let server = match self.known_server().filter(|_| control.takes_several()) {
            Some(server) => {
                self.log_in_again(&mut control, security.is_some(), &server).await?;
                server
            }
            None => {
                self.log_in(&mut control, security.is_some()).await?;
                self.server(&mut control, &greeting).await?
            }
        };
        let session = Session::new(control, server, security, (peer, patience), gauge);
        Ok(Opened { session, rtt })
    }

    /// Negotiates TLS, depending on the options.
    async fn secure(&self, control: &mut Control) -> Result<Option<Security>> {
        let has_none = self.offers_no_tls.load(Ordering::Relaxed);
        if self.options.tls == TlsMode::Never || has_none {
            return Ok(None);
        }
        let reply = control.request(&Command::new("AUTH", "TLS")?).await?;
        if reply.code() != 234 {
            if self.offers_tls.load(Ordering::Relaxed) {
                return Err(refused("negotiate TLS", &reply));
            }
            if self.options.tls == TlsMode::Auto && !control.is_broken() {
                self.offers_no_tls.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            return Err(Error::new(ErrorKind::Unsupported, "negotiate TLS").because(format!(
                "the server does not offer TLS: {reply}; ftps:// requires it, ftp:// does not"
            )));
        }
        let security = self.security()?;
        let secured = control.secure(&security).await;
        if !secured.map_err(|error| tls::explain(error, &self.host))? {
            let cause = "unencrypted data follows the reply to AUTH TLS; it may be injected";
            return Err(protocol("negotiate TLS", cause));
        }
        self.offers_tls.store(true, Ordering::Relaxed);
        Ok(Some(security))
    }

    fn security(&self) -> Result<Security> {
        let config = match self.config.get() {
            Some(config) => Arc::clone(config),
            None => {
                let config = self.options.trust.client_config(&[])?;
                Arc::clone(self.config.get_or_init(|| config))
            }
        };
        Ok(Security::new(&config, tls::server_name(&self.host)?))
    }

    async fn log_in(&self, control: &mut Control, secure: bool) -> Result<()> {
        let user = self.options.user.as_deref().unwrap_or(ANONYMOUS);
        let mut commands = Vec::new();
        if secure {
            commands.extend([Command::new("PBSZ", "0")?, Command::new("PROT", "P")?]);
        }
        commands.push(Command::new("USER", user)?);
        let mut replies = control.exchange(&commands).await?;
        let reply = replies.pop().ok_or_else(|| protocol("log in", "no reply"))?;
        if let Some(protection) = replies.pop().filter(|reply| !reply.is_done()) {
            return Err(unprotected(&protection));
        }
        match reply.code() {
            331 => self.try_password(control, user).await,
            _ => {
                let outcome = self.check_login(user, &reply);
                if let Err(error) = &outcome
                    && error.kind() == ErrorKind::Unauthenticated
                {
                    // No password would help.
                    self.trial.lock().await.refused = Some(error.cause());
                }
                outcome
            }
        }
    }

    /// Sends the password. Until one is accepted, one lane tries and the others wait for the outcome.
    async fn try_password(&self, control: &mut Control, user: &str) -> Result<()> {
        let mut trial = self.trial.lock().await;
        if let Some(password) = self.password.get() {
            drop(trial);
            let reply = control.request(&Command::password(password.expose())?).await?;
            return self.check_login(user, &reply);
        }
        if let Some(cause) = &trial.refused {
            return Err(denied(cause.clone()));
        }
        let before = trial.prompts;
        let password = self.find_password(user, &mut trial).await?;
        let reply = control.request(&Command::password(password.expose())?).await?;
        let outcome = self.check_login(user, &reply);
        match &outcome {
            // Only the holder of `trial` sets it, so this cannot fail.
            Ok(()) => drop(self.password.set(password)),
            Err(error) if error.kind() == ErrorKind::Unauthenticated => {
                if trial.prompts == before || trial.prompts >= MAX_PROMPTS {
                    trial.refused = Some(error.cause());
                } else {
                    trial.is_mistyped = true;
                    self.prompter.notice(TRY_AGAIN).await;
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Whether a typed password was refused since the last call, and the user may try again. Not if the
    /// server refuses the user name itself.
    async fn may_retype(&self) -> bool {
        let mut trial = self.trial.lock().await;
        let is_mistyped = mem::take(&mut trial.is_mistyped);
        is_mistyped && trial.refused.is_none() && self.password.get().is_none()
    }

    fn check_login(&self, user: &str, reply: &Reply) -> Result<()> {
        match reply.code() {
            230 | 202 | 232 => Ok(()),
            332 => Err(Error::new(ErrorKind::Unsupported, "log in")
                .because("the server requires an account (ACCT), which is not supported")),
            _ => Err(self.not_logged_in(user, reply)),
        }
    }

    /// Logs in the way that worked before, with all commands in one flight.
    async fn log_in_again(
        &self,
        control: &mut Control,
        secure: bool,
        server: &Server,
    ) -> Result<()> {
        let user = self.options.user.as_deref().unwrap_or(ANONYMOUS);
        let mut commands = Vec::new();
        if secure {
            commands.extend([Command::new("PBSZ", "0")?, Command::new("PROT", "P")?]);
        }
        commands.push(Command::new("USER", user)?);
        // `None` if the first login needed no password.
        let password = self.password.get();
        if let Some(password) = password {
            commands.push(Command::password(password.expose())?);
        }
        let begin = commands.len();
        commands.push(Command::new("TYPE", "I")?);
        commands.extend(server.features.utf8.then(utf8).transpose()?);
        let replies = control.exchange(&commands).await?;
        let user_at = begin - 1 - usize::from(password.is_some());
        if let Some(protection) = replies[..user_at].last().filter(|reply| !reply.is_done()) {
            return Err(unprotected(protection));
        }
        let reply = match replies[user_at].code() {
            331 if password.is_some() => &replies[user_at + 1],
            _ => &replies[user_at],
        };
        self.check_login(user, reply)?;
        is_binary(&replies[begin])
    }

    fn not_logged_in(&self, user: &str, reply: &Reply) -> Error {
        // A 530 after a successful login is not about the password.
        let too_many = is_too_many(reply) || (reply.code() == 530 && self.server.get().is_some());
        if too_many {
            let cause = format!("the server replied: {reply}");
            return Error::new(ErrorKind::Busy, "log in").because(cause);
        }
        let error = refused("log in", reply).with_retry(Retry::Never);
        error.because(format!("user {}: the server replied: {reply}", user.escape_debug()))
    }

    async fn find_password(&self, user: &str, trial: &mut Trial) -> Result<Secret> {
        if let Some(source) = &self.options.password {
            return fetched(source).await;
        }
        if user == ANONYMOUS || user == "ftp" {
            return Ok(Secret::new(ANONYMOUS_PASSWORD));
        }
        let prompt = format!("Password for {user}@{}: ", self.name());
        trial.prompts += 1;
        let given = self.prompter.secret(&prompt).await?;
        given.ok_or_else(|| {
            let user = user.escape_debug();
            let cause = format!("the server requires a password for {user}, and none was given");
            // A user who gave no password is not prompted again for every lane.
            trial.refused = Some(cause.clone());
            denied(cause)
        })
    }

    /// The server's features. The first lane requests them; later ones only set the transfer type and UTF-8.
    async fn server(&self, control: &mut Control, greeting: &Reply) -> Result<Arc<Server>> {
        let binary = Command::new("TYPE", "I")?;
        let utf8 = utf8()?;
        if let Some(server) = self.server.get() {
            let mut commands = vec![binary];
            commands.extend(server.features.utf8.then_some(utf8));
            let replies = control.exchange(&commands).await?;
            is_binary(&replies[0])?;
            return Ok(Arc::clone(server));
        }
        let commands =
            [Command::bare("FEAT"), utf8, binary, Command::bare("SYST"), Command::bare("PWD")];
        let replies = control.exchange(&commands).await?;
        let [feat, _, binary, system, home] = &replies[..] else {
            return Err(protocol("log in", "a reply is missing"));
        };
        is_binary(binary)?;
        let features = Features::parse(feat);
        let system = if system.is_done() { system.text() } else { String::new() };
        let home = quoted(home).unwrap_or_else(|| b"/".to_vec());
        let server =
            Server::new(features, &greeting.text(), &system, home, Arc::clone(&self.learnt));
        Ok(Arc::clone(self.server.get_or_init(|| Arc::new(server))))
    }
}

fn denied(cause: String) -> Error {
    Error::new(ErrorKind::Unauthenticated, "log in").because(cause)
}

async fn fetched(source: &PasswordSource) -> Result<Secret> {
    source
        .fetch()
        .await
        .map_err(|cause| Error::new(ErrorKind::Unauthenticated, "get the password").because(cause))
}

fn utf8() -> Result<Command> {
    Command::new("OPTS", "UTF8 ON")
}

fn unprotected(reply: &Reply) -> Error {
    Error::new(ErrorKind::Unsupported, "encrypt data connections")
        .because(format!("the server replied: {reply}"))
}

fn is_binary(reply: &Reply) -> Result<()> {
    if reply.is_done() {
        return Ok(());
    }
    // Any other type alters the bytes.
    Err(Error::new(ErrorKind::Unsupported, "set the transfer type")
        .because(format!("the server replied: {reply}")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use async_trait::async_trait;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Types a wrong password at every prompt.
    #[derive(Debug)]
    struct Mistypes;

    #[async_trait]
    impl Prompter for Mistypes {
        async fn secret(&self, _: &str) -> Result<Option<Secret>> {
            Ok(Some(Secret::new("wrong")))
        }

        async fn visible(&self, _: &str) -> Result<Option<String>> {
            Ok(None)
        }

        async fn notice(&self, _: &str) {}
    }

    /// haul used to reconnect to such a server endlessly, without a pause.
    #[tokio::test]
    async fn a_server_that_refuses_the_user_after_a_wrong_password_gets_no_third_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
                let mut stream = BufReader::new(stream);
                let _ = stream.write_all(b"220 Hello.\r\n").await;
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                    let reply = match line.starts_with("USER") && is_first {
                        true => "331 Password?\r\n",
                        false => "530 Login incorrect.\r\n",
                    };
                    let _ = stream.write_all(reply.as_bytes()).await;
                    line.clear();
                }
            }
        });
        let user = Some("ada".to_owned());
        let options = FtpOptions { tls: TlsMode::Never, user, ..FtpOptions::default() };
        let login = Login::new("127.0.0.1".to_owned(), Some(port), options, Arc::new(Mistypes));
        let opened = timeout(Duration::from_secs(20), login.open()).await.unwrap();
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unauthenticated);
        assert_eq!(connections.load(Ordering::Relaxed), 2);
        server.abort();
    }
}
