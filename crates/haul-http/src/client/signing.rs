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
    home: SignIn,
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
            home: SignIn::new(home, user, options, Arc::clone(&prompter)),
            prompter,
            others: Mutex::default(),
        }
    }

    /// Whether this is the server that the location names.
    pub fn is_home(&self, origin: &Origin) -> bool {
        self.home.origin() == origin
    }

    /// What to say with a request before it is asked for.
    ///
    /// # Errors
    /// What there is to say cannot be had, or not be sent.
    pub async fn first(&self, method: &Method, url: &Url) -> Result<Option<Said>> {
        match (self.is_home(&url.origin), self.is_given) {
            (true, true) => Ok(None),
            (true, false) => self.home.first(method, url).await,
            (false, _) => match self.other(&url.origin) {
                Some(other) => other.first(method, url).await,
                None => Ok(None),
            },
        }
    }

    /// What has worked, or is being tried.
    ///
    /// # Errors
    /// It cannot be said of this request.
    pub fn known(&self, method: &Method, url: &Url) -> Result<Option<Said>> {
        match (self.is_home(&url.origin), self.is_given) {
            (true, true) => Ok(None),
            (true, false) => self.home.known(method, url),
            (false, _) => match self.other(&url.origin) {
                Some(other) => other.known(method, url),
                None => Ok(None),
            },
        }
    }

    /// Whether there is something to say to the server of the location that has not been found out yet.
    pub fn is_needed(&self) -> bool {
        !self.is_given && self.home.is_needed()
    }

    /// A server has accepted what was said, or what was typed for it.
    pub fn accepted(&self, origin: &Origin, trial: Option<Trial<'_>>) {
        if self.is_home(origin) {
            self.home.accepted(trial);
        } else if let Some(other) = self.other(origin) {
            other.accepted(None);
        }
    }

    /// Finds out what to answer to a challenge; see [`SignIn::challenged`]. What is typed is for the server that the
    /// location names.
    ///
    /// # Errors
    /// There is nothing to say, or what was said is wrong.
    pub async fn challenged<'a>(
        &'a self,
        head: &Head,
        said: Option<&Said>,
        trial: Option<Trial<'a>>,
    ) -> Result<Option<Trial<'a>>> {
        let (url, origin) = (&head.url, &head.url.origin);
        let denied = Error::new(ErrorKind::Unauthenticated, "authenticate").at(url);
        match (self.is_home(origin), self.is_given) {
            (true, true) => {
                Err(denied.because("the server rejected the given Authorization header"))
            }
            (true, false) => self.home.challenged(head, said, trial).await,
            (false, _) => match self.other(origin) {
                Some(other) => {
                    // Nothing is typed for it.
                    other.challenged(head, said, None).await?;
                    Ok(None)
                }
                None => Err(self.unknown(denied, origin)),
            },
        }
    }

    /// Whether requests to a server are signed because another one redirects to it.
    pub fn signs_for_others(&self, origin: &Origin) -> bool {
        !self.is_home(origin) && self.other(origin).is_some()
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
