//! What russh tells of a connection on its own: the host key to be judged, banners, refusals, and
//! its end. [`Events`] hears it inside russh's task; [`State`] is what everybody else can see.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result, Retry};
use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::{Certificate, PublicKeyOrCertificate};
use russh::{ChannelId, ChannelOpenFailure, Disconnect, Names, kex};
use tokio::sync::watch;

use crate::ssh::host_key::HostKeyJudge;
use crate::ssh::key::{HostCertificate, HostKey};
use crate::ssh::known_hosts::KnownHosts;
use crate::ssh::options::Prompter;

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// The server said goodbye in these words. `fatal`: it will say the same next time.
    Farewell {
        /// What it said.
        text: String,
        /// Whether the two cannot understand each other.
        fatal: bool,
    },
    /// The server has no method of authentication left.
    NoMethodLeft,
    /// It broke off.
    Broken(String),
}

/// A connection as seen from outside of russh's task.
#[derive(Debug)]
pub struct State {
    location: String,
    end: Mutex<Option<End>>,
    has_ended: watch::Sender<bool>,
    version: OnceLock<String>,
    /// Time of the first exchange.
    pub first_exchange: Arc<OnceLock<Duration>>,
    kex_round_trips: AtomicU32,
    asking: AtomicBool,
    refusal: Mutex<Option<String>>,
}

impl State {
    /// Of a connection that begins.
    pub fn new(location: String) -> Self {
        Self {
            location,
            end: Mutex::default(),
            has_ended: watch::Sender::new(false),
            version: OnceLock::new(),
            first_exchange: Arc::default(),
            kex_round_trips: AtomicU32::new(1),
            asking: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }

    /// What the host is called in errors.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// An error about this host.
    pub fn error(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, operation).at(&self.location)
    }

    /// What the server calls itself.
    pub fn server_version(&self) -> String {
        self.version.get().cloned().unwrap_or_default()
    }

    /// The round trips of the exchange of keys.
    pub fn kex_round_trips(&self) -> u32 {
        self.kex_round_trips.load(Ordering::Relaxed)
    }

    /// Somebody is being asked something until what is given is dropped.
    pub fn asking(self: &Arc<Self>) -> Asking {
        self.asking.store(true, Ordering::Relaxed);
        Asking(Arc::clone(self))
    }

    /// Whether somebody is being asked something.
    pub fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed)
    }

    /// Whether the end of the connection is as asked.
    pub fn end_is(&self, wanted: impl FnOnce(&End) -> bool) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(wanted)
    }

    /// Whether the server has no method of authentication left.
    pub fn refused_every_method(&self) -> bool {
        self.end_is(|end| matches!(end, End::NoMethodLeft))
    }

    /// Why the connection ended, if it is known.
    pub fn reason(&self) -> Option<String> {
        match self.end.lock().unwrap_or_else(PoisonError::into_inner).as_ref()? {
            End::Farewell { text, .. } => Some(format!("the server says: {text}")),
            End::NoMethodLeft => Some("the server accepts no way to authenticate".to_owned()),
            End::Broken(cause) => Some(cause.clone()),
        }
    }

    /// Waits for the end of the connection.
    pub async fn ended(&self) {
        // The sender is in self and cannot be gone.
        let _ = self.has_ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// The error of a connection that has ended in the midst of something.
    pub fn lost(&self, operation: &'static str) -> Error {
        let reason = self.reason();
        let said = self.end_is(|end| matches!(end, End::Farewell { .. } | End::NoMethodLeft));
        if operation == "authenticate" && said {
            return self
                .error(ErrorKind::Unauthenticated, operation)
                .because(reason.unwrap_or_default())
                .with_retry(Retry::Never);
        }
        let reason = reason.unwrap_or_else(|| "the connection is closed".to_owned());
        self.error(ErrorKind::Unreachable, operation).because(reason)
    }

    /// Folds an error of russh that came after the exchange of keys.
    pub fn failed(&self, operation: &'static str, error: russh::Error) -> Error {
        use russh::Error as Ssh;
        match error {
            Ssh::SendError | Ssh::RecvError | Ssh::Disconnect | Ssh::HUP => self.lost(operation),
            Ssh::IO(error) => self.error(ErrorKind::Unreachable, operation).with_source(error),
            error => self.error(ErrorKind::Protocol, operation).with_source(error),
        }
    }

    /// Why a channel was not opened, in the server's words if it had any.
    pub fn refusal(&self, reason: &ChannelOpenFailure) -> String {
        let said = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        let said = said.filter(|text| !text.is_empty());
        let what = match reason {
            ChannelOpenFailure::AdministrativelyProhibited => "the server does not allow it",
            ChannelOpenFailure::ConnectFailed => "the connection failed",
            ChannelOpenFailure::UnknownChannelType => "the server does not know this kind",
            ChannelOpenFailure::ResourceShortage => "the server is short of resources",
            ChannelOpenFailure::Other { .. } => "the server refuses",
        };
        match said {
            Some(said) => format!("{what} ({said}; MaxSessions may be reached)"),
            None => what.to_owned(),
        }
    }

    fn end(&self, end: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
    }
}

/// Somebody is being asked something.
#[derive(Debug)]
pub struct Asking(Arc<State>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.store(false, Ordering::Relaxed);
    }
}

/// Why a connection did not come about.
#[derive(Debug)]
pub enum Failure {
    /// The judge refused the host key.
    Refused(Error),
    /// Something in the protocol or below.
    Ssh(russh::Error),
}

impl From<russh::Error> for Failure {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

/// Hears what happens, inside russh's task.
#[derive(Debug)]
pub struct Events {
    state: Arc<State>,
    judge: Arc<HostKeyJudge>,
    known: Arc<KnownHosts>,
    greeter: Arc<Greeter>,
}

/// Shows the banner of a host, once however many connections have it.
#[derive(Debug)]
pub struct Greeter {
    prompter: Arc<dyn Prompter>,
    shown: Mutex<Option<String>>,
}

impl Greeter {
    /// Shows banners to `prompter`.
    pub fn new(prompter: Arc<dyn Prompter>) -> Self {
        Self { prompter, shown: Mutex::default() }
    }

    async fn greet(&self, banner: String) {
        let last =
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).replace(banner.clone());
        if last.as_ref() != Some(&banner) {
            self.prompter.notice(&banner).await;
        }
    }
}

impl Events {
    /// For one connection.
    pub fn new(
        state: Arc<State>,
        judge: Arc<HostKeyJudge>,
        known: Arc<KnownHosts>,
        greeter: Arc<Greeter>,
    ) -> Self {
        Self { state, judge, known, greeter }
    }
}

impl Drop for Events {
    /// russh drops it when its task is over, by whatever way.
    fn drop(&mut self) {
        self.state.has_ended.send_replace(true);
    }
}

impl Handler for Events {
    type Error = Failure;

    async fn auth_banner(&mut self, banner: &str, _: &mut Session) -> Result<(), Failure> {
        self.greeter.greet(printable(banner)).await;
        Ok(())
    }

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Failure> {
        let key = host_key(shown)?;
        let _asking = self.state.asking();
        self.judge.judge(&self.known, &key).await.map(|()| true).map_err(Failure::Refused)
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        names: &Names,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let version = String::from_utf8_lossy(session.remote_sshid()).trim().to_owned();
        self.state.version.get_or_init(|| version);
        // A group is asked for first.
        if [kex::DH_GEX_SHA1, kex::DH_GEX_SHA256].contains(&names.kex) {
            self.state.kex_round_trips.store(2, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _: ChannelId,
        _: ChannelOpenFailure,
        description: &str,
        _: &str,
        _: &mut Session,
    ) -> Result<(), Failure> {
        let mut refusal = self.state.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        *refusal = Some(printable(description));
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<Failure>) -> Result<(), Failure> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let fatal = matches!(
                    info.reason_code,
                    Disconnect::KeyExchangeFailed | Disconnect::ProtocolVersionNotSupported
                );
                self.state.end(End::Farewell { text: printable(&info.message), fatal });
                Ok(())
            }
            DisconnectReason::Error(failure) => {
                self.state.end(match &failure {
                    Failure::Ssh(russh::Error::NoAuthMethod) => End::NoMethodLeft,
                    Failure::Ssh(russh::Error::KeepaliveTimeout) => End::Broken(
                        "the server has answered nothing for longer than ServerAliveInterval and \
                         ServerAliveCountMax allow"
                            .to_owned(),
                    ),
                    Failure::Ssh(russh::Error::Disconnect) => {
                        End::Broken("the server closed the connection".to_owned())
                    }
                    Failure::Ssh(error) => End::Broken(format!("the connection broke: {error}")),
                    Failure::Refused(error) => End::Broken(error.to_string()),
                });
                Err(failure)
            }
        }
    }

    // haul asks for nothing that makes a server open channels; a reply that is dropped refuses.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: russh::Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _: russh::Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Failure> {
        Ok(())
    }
}

/// Text of a server without what would steer a terminal (RFC 4252, 5.4), and without the space
/// after it.
fn printable(text: &str) -> String {
    visible(text.trim_end())
}

/// Text of a server without what would steer a terminal.
pub fn visible(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || ['\n', '\t'].contains(c)).collect()
}

fn host_key(shown: &PublicKeyOrCertificate) -> Result<HostKey, russh::Error> {
    let key = shown.public_key();
    Ok(HostKey {
        key_type: plain_type(&key.algorithm()),
        blob: key.to_bytes()?,
        certificate: shown.certificate().map(certificate).transpose()?,
    })
}

/// The type of the key itself, whatever it signs with.
fn plain_type(algorithm: &russh::keys::Algorithm) -> String {
    if algorithm.clone().is_rsa() { "ssh-rsa".to_owned() } else { algorithm.as_str().to_owned() }
}

fn certificate(certificate: &Certificate) -> Result<HostCertificate, russh::Error> {
    let authority = russh::keys::PublicKey::new(certificate.signature_key().clone(), "");
    // A time within the period: the judge looks at the clock, this is about the signature only.
    let fingerprint = authority.fingerprint(russh::keys::HashAlg::Sha256);
    let signature = certificate.validate_at(certificate.valid_after(), [&fingerprint]);
    Ok(HostCertificate {
        authority: authority.to_bytes()?,
        signature_valid: signature.is_ok(),
        for_host: certificate.cert_type().is_host(),
        principals: certificate.valid_principals().to_vec(),
        valid_after: certificate.valid_after(),
        valid_before: certificate.valid_before(),
        critical_options: certificate.critical_options().iter().next().is_some(),
        key_id: certificate.key_id().to_owned(),
    })
}
