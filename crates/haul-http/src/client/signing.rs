//! Credentials for each server of an exchange.
//!
//! | server | credentials |
//! |---|---|
//! | the server in the location | `--header Authorization`, or token, password or netrc ([`SignIn`]) |
//! | a server that it redirects to, over a private connection ([`Privacy`]) | its `machine` line in the netrc |
//! | all others | none |

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use haul_net::Prompter;
use haul_storage::{Error, ErrorKind, Result};
use http::Method;
use http::header::AUTHORIZATION;

use super::auth::{Credentials, SignIn, Trial};
use super::head::Head;
use super::options::HttpOptions;
use super::privacy::Privacy;
use crate::parse::netrc::Netrc;
use crate::parse::{Origin, Url};

/// Credentials by server.
#[derive(Debug)]
pub struct SignIns {
    home: Arc<SignIn>,
    /// The user has set `Authorization` for the server in the location.
    is_given: bool,
    netrc: Option<Arc<Netrc>>,
    privacy: Privacy,
    prompter: Arc<dyn Prompter>,
    others: Mutex<HashMap<Origin, Option<Arc<SignIn>>>>,
}

impl SignIns {
    /// Credentials for `home`, the server in the location, and its `user`.
    pub fn new(
        home: Origin,
        user: Option<String>,
        options: &HttpOptions,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        Self {
            is_given: options.headers.fields().contains_key(AUTHORIZATION),
            netrc: options.netrc.clone(),
            privacy: Privacy::new(&home, options),
            home: Arc::new(SignIn::new(home, user, options, Arc::clone(&prompter))),
            prompter,
            others: Mutex::default(),
        }
    }

    /// Whether this is the server in the location.
    pub fn is_home(&self, origin: &Origin) -> bool {
        self.home.origin() == origin
    }

    /// Begins a trial of credentials that can be sent without a challenge; see [`SignIn::try_preemptive`].
    ///
    /// # Errors
    /// If the credentials cannot be obtained.
    pub async fn try_preemptive(&self, url: &Url) -> Result<Option<Trial>> {
        match self.of(&url.origin) {
            Some(signer) => signer.try_preemptive(url).await,
            None => Ok(None),
        }
    }

    /// Waits while another request tries to sign in to a server. Returns whether that is still to be done.
    pub async fn is_to_be_tried(&self, url: &Url) -> bool {
        match self.of(&url.origin) {
            Some(signer) => signer.is_to_be_tried(url).await,
            None => false,
        }
    }

    /// The credentials that a server has accepted, for this request.
    ///
    /// # Errors
    /// If they cannot be computed for this request.
    pub fn known(&self, method: &Method, url: &Url) -> Result<Option<Credentials>> {
        match self.of(&url.origin) {
            Some(signer) => signer.known(method, url),
            None => Ok(None),
        }
    }

    /// Whether a user name or credentials are known for the server in the location, but it has not accepted
    /// any yet.
    pub fn is_needed(&self) -> bool {
        !self.is_given && self.home.is_needed()
    }

    /// A server has accepted the credentials.
    pub fn accepted(&self, url: &Url, trial: Trial) {
        if let Some(signer) = self.of(&url.origin) {
            signer.accepted(url, trial);
        }
    }

    /// Determines the response to a challenge; see [`SignIn::challenged`]. The user is prompted only for credentials of
    /// the server in the location.
    ///
    /// # Errors
    /// If there are no credentials, or those that were sent are wrong.
    pub async fn challenged(
        &self,
        head: &Head,
        credentials: Option<&Credentials>,
        trial: Option<Trial>,
    ) -> Result<Option<Trial>> {
        let (url, origin) = (&head.url, &head.url.origin);
        if let Some(signer) = self.of(origin) {
            return signer.challenged(head, credentials, trial).await;
        }
        let denied = Error::new(ErrorKind::Unauthenticated, "authenticate").at(url);
        match self.is_home(origin) {
            true => Err(denied.because("the server rejected the given Authorization header")),
            false => Err(self.unknown(denied, origin)),
        }
    }

    /// Whether there are credentials for a server to which another one redirects.
    pub fn signs_for_others(&self, origin: &Origin) -> bool {
        !self.is_home(origin) && self.other(origin).is_some()
    }

    /// The credentials for a server, unless the user has set `Authorization` for it.
    fn of(&self, origin: &Origin) -> Option<Arc<SignIn>> {
        match self.is_home(origin) {
            true => (!self.is_given).then(|| Arc::clone(&self.home)),
            false => self.other(origin),
        }
    }

    fn other(&self, origin: &Origin) -> Option<Arc<SignIn>> {
        let netrc = self.netrc.as_ref().filter(|_| self.privacy.is_private(origin))?;
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let other = others.entry(origin.clone()).or_insert_with(|| {
            let prompter = Arc::clone(&self.prompter);
            SignIn::redirected(origin.clone(), Arc::clone(netrc), prompter).map(Arc::new)
        });
        other.clone()
    }

    fn unknown(&self, denied: Error, origin: &Origin) -> Error {
        let denied = denied.because(format!(
            "{origin}, to which {} redirects, requires credentials; those of {} are not sent there",
            self.home.origin(),
            self.home.origin()
        ));
        if !self.privacy.is_private(origin) {
            return denied;
        }
        let host = origin.host();
        denied
            .hinting(format!("add a line to ~/.netrc: machine {host} login USER password PASSWORD"))
    }
}
