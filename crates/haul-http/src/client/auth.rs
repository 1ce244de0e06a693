//! Who we are, to the origin that the user named and to no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::BASE64;
use haul_net::{PasswordSource, Prompter, Secret};
use haul_storage::{Error, ErrorKind, Result};
use http::HeaderValue;

use super::options::HttpOptions;
use crate::parse::{Origin, Url};

/// What is needed to sign requests to one origin.
#[derive(Debug)]
pub struct SignIn {
    origin: Origin,
    user: Option<String>,
    password: Option<PasswordSource>,
    token: Option<PasswordSource>,
    prompter: Arc<dyn Prompter>,
    /// What worked, or is being tried.
    state: Mutex<Option<HeaderValue>>,
    /// Held by who asks for the password, so that the others do not ask as well.
    asking: tokio::sync::Mutex<()>,
}

impl SignIn {
    /// For `origin`; `user` is that of the location.
    pub fn new(
        origin: Origin,
        user: Option<String>,
        options: &HttpOptions,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        Self {
            origin,
            user,
            password: options.password.clone(),
            token: options.token.clone(),
            prompter,
            state: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// What to say with a request before anybody asked: what has worked.
    pub fn known(&self, url: &Url) -> Option<HeaderValue> {
        if url.origin != self.origin { None } else { self.lock().clone() }
    }

    /// Whether there is something to say that was not asked for yet.
    pub fn is_needed(&self) -> bool {
        (self.user.is_some() || self.token.is_some()) && self.lock().is_none()
    }

    /// What to answer to a challenge; `refused` is what was said and not accepted.
    ///
    /// # Errors
    /// There is nothing to say, or it is wrong.
    pub async fn answer(&self, url: &Url, refused: Option<&HeaderValue>) -> Result<HeaderValue> {
        let denied = |cause: String| {
            Error::new(ErrorKind::Unauthenticated, "sign in").at(url).because(cause)
        };
        if url.origin != self.origin {
            return Err(denied(format!(
                "{} asks who we are; what signs in to {} is not for it",
                url.origin, self.origin
            )));
        }
        let _turn = self.asking.lock().await;
        // Somebody else may have found it out meanwhile.
        let known = self.lock().clone();
        match (known, refused) {
            (Some(known), Some(refused)) if known == refused => {
                return Err(denied("the server refuses the name or the password".to_owned()));
            }
            (Some(known), _) => return Ok(known),
            (None, _) => {}
        }
        let value = self.value().await.map_err(denied)?;
        *self.lock() = Some(value.clone());
        Ok(value)
    }

    async fn value(&self) -> Result<HeaderValue, String> {
        if let Some(token) = &self.token {
            let token = token.fetch().await?;
            return secret_value(&format!("Bearer {}", token.expose()));
        }
        let Some(user) = &self.user else {
            return Err(
                "the server wants to know who asks: put USER@ before the host, and the password \
                 into HAUL_PASSWORD; or a token into HAUL_TOKEN"
                    .to_owned(),
            );
        };
        let password = match &self.password {
            Some(source) => source.fetch().await?,
            None => self.asked(user).await?,
        };
        let pair = zeroize::Zeroizing::new(format!("{user}:{}", password.expose()));
        secret_value(&format!("Basic {}", BASE64.encode(pair.as_bytes())))
    }

    async fn asked(&self, user: &str) -> Result<Secret, String> {
        let prompt = format!("Password of {user} at {}: ", self.origin);
        let asked = self.prompter.secret(&prompt).await.map_err(|error| error.to_string())?;
        asked.ok_or_else(|| {
            format!("there is no password for {user}, and nobody to ask: set HAUL_PASSWORD")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn secret_value(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "there is something in it that a header cannot have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
