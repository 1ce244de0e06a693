//! Who we are to each server of an exchange.
//!
//! | server | signed in with |
//! |---|---|
//! | the one that the location names | `--header Authorization`, or the token, the password, the netrc ([`SignIn`]) |
//! | one that it redirects to and that is private ([`Privacy`]) | its `machine` line in the netrc |
//! | all others | nothing |

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use haul_net::Prompter;
use haul_storage::{Error, ErrorKind, Result};
use http::Method;
use http::header::AUTHORIZATION;

use super::auth::{Said, SignIn, Trial};
use super::head::Head;
use super::options::HttpOptions;
use super::privacy::Privacy;
use crate::parse::netrc::Netrc;
use crate::parse::{Origin, Url};

/// What signs requests, by server.
#[derive(Debug)]
pub struct SignIns {
    home: Arc<SignIn>,
    /// The user gave the field that signs in, for the server that the location names.
    is_given: bool,
    netrc: Option<Arc<Netrc>>,
    privacy: Privacy,
    prompter: Arc<dyn Prompter>,
    others: Mutex<HashMap<Origin, Option<Arc<SignIn>>>>,
}

impl SignIns {
    /// For `home`, which the location names, and `user` in it.
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

    /// Whether this is the server that the location names.
    pub fn is_home(&self, origin: &Origin) -> bool {
        self.home.origin() == origin
    }

    /// Begins to try what can be said to a server unasked; see [`SignIn::try_unasked`].
    ///
    /// # Errors
    /// What there is to say cannot be had.
    pub async fn try_unasked(&self, url: &Url) -> Result<Option<Trial>> {
        match self.of(&url.origin) {
            Some(signer) => signer.try_unasked(url).await,
            None => Ok(None),
        }
    }

    /// Waits while a request tries to sign in to a server. Whether one still has to.
    pub async fn is_to_be_tried(&self, origin: &Origin) -> bool {
        match self.of(origin) {
            Some(signer) => signer.is_to_be_tried().await,
            None => false,
        }
    }

    /// What a server has accepted.
    ///
    /// # Errors
    /// It cannot be said of this request.
    pub fn known(&self, method: &Method, url: &Url) -> Result<Option<Said>> {
        match self.of(&url.origin) {
            Some(signer) => signer.known(method, url),
            None => Ok(None),
        }
    }

    /// Whether there is something to say to the server of the location that has not been found out yet.
    pub fn is_needed(&self) -> bool {
        !self.is_given && self.home.is_needed()
    }

    /// A server has accepted what was said.
    pub fn accepted(&self, origin: &Origin, trial: Option<Trial>) {
        if let Some(signer) = self.of(origin) {
            signer.accepted(trial);
        }
    }

    /// Finds out what to answer to a challenge; see [`SignIn::challenged`]. What is typed is for the server that the
    /// location names.
    ///
    /// # Errors
    /// There is nothing to say, or what was said is wrong.
    pub async fn challenged(
        &self,
        head: &Head,
        said: Option<&Said>,
        trial: Option<Trial>,
    ) -> Result<Option<Trial>> {
        let (url, origin) = (&head.url, &head.url.origin);
        if let Some(signer) = self.of(origin) {
            return signer.challenged(head, said, trial).await;
        }
        let denied = Error::new(ErrorKind::Unauthenticated, "authenticate").at(url);
        match self.is_home(origin) {
            true => Err(denied.because("the server rejected the given Authorization header")),
            false => Err(self.unknown(denied, origin)),
        }
    }

    /// Whether requests to a server are signed because another one redirects to it.
    pub fn signs_for_others(&self, origin: &Origin) -> bool {
        !self.is_home(origin) && self.other(origin).is_some()
    }

    /// Who signs requests to a server, if it is not signed in to by a header of the user.
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
