//! Verifies host keys: by the known hosts, the configuration and, if necessary, the user.
//!
//! The first accepted key is the host's key for the rest of the run ([`pin`](super::pin)). If it was
//! unknown, it is stored in the known_hosts file for later runs. The user is not prompted again for
//! a key that was refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_storage::{Error, ErrorKind, Result, Retry, text};
use tokio::sync::Mutex;

use super::config::{HostConfig, StrictHostKeys};
use super::key::{self, HostCertificate, HostKey};
use super::known_hosts::{self, HostName, KnownHosts, NewEntry, Verdict};
use super::options::Prompter;
use super::pin::Pin;

/// Verifies the keys that one host presents.
#[derive(Debug)]
pub struct HostKeyJudge {
    /// The names by which the host is looked up.
    pub host: HostName,
    location: String,
    strict: StrictHostKeys,
    hashed: bool,
    /// The file to which accepted keys are added.
    file: Option<PathBuf>,
    batch: bool,
    /// Minimum length of RSA keys, and accepted signature algorithms of authorities.
    required_rsa_bits: u32,
    ca_signatures: Vec<&'static str>,
    prompter: Arc<dyn Prompter>,
    /// The host's key in this run.
    pin: Arc<Pin>,
    /// Locked by the connection that prompts the user.
    decisions: Mutex<Decisions>,
}

/// Decisions with the settings of this host. The pin is shared with hosts whose settings may accept
/// more, so it refuses keys but never accepts one.
#[derive(Debug, Default)]
struct Decisions {
    accepted: Option<Vec<u8>>,
    refused: Vec<Vec<u8>>,
}

impl HostKeyJudge {
    /// The judge for one host.
    pub fn new(
        config: &HostConfig,
        pin: Arc<Pin>,
        location: String,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        let alias = config.host_key_alias.as_deref();
        Self {
            host: HostName::new(alias, &config.host_name, config.port),
            location,
            strict: config.strict_host_keys,
            hashed: config.hash_known_hosts,
            file: config.user_known_hosts.first().cloned(),
            batch: config.batch_mode,
            required_rsa_bits: config.required_rsa_bits,
            ca_signatures: config.ca_signatures.clone(),
            prompter,
            pin,
            decisions: Mutex::default(),
        }
    }

    /// Returns an error unless the key is accepted.
    ///
    /// # Errors
    /// `Unauthenticated`, not to be retried, for a key that is not accepted; errors of the prompter.
    pub async fn judge(&self, known: &KnownHosts, key: &HostKey) -> Result<()> {
        if let Some(bits) = key.rsa_bits.filter(|&bits| bits < self.required_rsa_bits) {
            return Err(self.refuse(format!(
                "its RSA host key {} has {bits} bits, and RequiredRSASize is {}",
                key.fingerprint(),
                self.required_rsa_bits
            )));
        }
        self.check_pin(key)?;
        self.verdict(known, key).await?;
        // Another connection may have pinned another key meanwhile.
        if self.pin.hold(&key.blob) { Ok(()) } else { self.check_pin(key) }
    }

    fn check_pin(&self, key: &HostKey) -> Result<()> {
        match self.pin.key() {
            Some(pinned) if pinned != key.blob => Err(self.refuse(format!(
                "{name} presents a different host key than earlier in this run: {kind} {new}, \
                 and it was {old}. \
                 Another machine may have taken its place, or several share its name",
                name = self.host.name,
                kind = key.kind(),
                new = key.fingerprint(),
                old = key::fingerprint(pinned),
            ))),
            _ => Ok(()),
        }
    }

    async fn verdict(&self, known: &KnownHosts, key: &HostKey) -> Result<()> {
        let verdict = known.look_up(&self.host, key);
        if let Verdict::Revoked(location) = &verdict {
            return Err(self.revoked(key, location));
        }
        let mut certificate_fault = None;
        if let Some(certificate) = &key.certificate {
            match self.certificate(known, certificate) {
                Ok(()) => return Ok(()),
                // As in OpenSSH, the plain key may still be known.
                Err(fault) => certificate_fault = Some(fault),
            }
        }
        match verdict {
            Verdict::Known => Ok(()),
            Verdict::Unknown(others) => self.unknown(key, &others, certificate_fault).await,
            Verdict::Changed(location, old) => Err(self.refuse(format!(
                "THE HOST KEY HAS CHANGED: the {kind} key of {name} is now {new}, but {location} \
                 has {old}. This may be a man-in-the-middle attack, or the host was given a new \
                 key. If you know that it was, remove the old one with: ssh-keygen -f \
                 '{file}' -R '{name}'",
                kind = key.kind(),
                name = self.host.name,
                new = key.fingerprint(),
                file = location.file.display(),
            ))),
            Verdict::Revoked(location) => Err(self.revoked(key, &location)),
        }
    }

    fn revoked(&self, key: &HostKey, location: &known_hosts::LineLocation) -> Error {
        self.refuse(format!(
            "the {} host key {} or the authority that signed it is revoked by {location}; do not \
             connect before the host has another one",
            key.kind(),
            key.fingerprint()
        ))
    }

    fn certificate(&self, known: &KnownHosts, certificate: &HostCertificate) -> Result<(), String> {
        let id = &certificate.key_id;
        if !known.is_authority(&self.host, &certificate.authority) {
            return Err(format!(
                "its certificate \"{id}\" is signed by {}, which is not a @cert-authority for {}",
                key::fingerprint(&certificate.authority),
                self.host.name
            ));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let weak = certificate.authority_rsa_bits.filter(|&bits| bits < self.required_rsa_bits);
        if !self.ca_signatures.contains(&certificate.signature_algorithm.as_str()) {
            Err(format!(
                "its certificate \"{id}\" is signed with {}, which CASignatureAlgorithms does not allow",
                certificate.signature_algorithm
            ))
        } else if let Some(bits) = weak {
            Err(format!(
                "its certificate \"{id}\" is signed by an RSA key of {bits} bits, and RequiredRSASize is {}",
                self.required_rsa_bits
            ))
        } else if !certificate.signature_valid {
            Err(format!("the signature of its certificate \"{id}\" is wrong"))
        } else if !certificate.for_host {
            Err(format!("its certificate \"{id}\" is for users, not for hosts"))
        } else if now < certificate.valid_after || now >= certificate.valid_before {
            Err(format!("its certificate \"{id}\" is not valid at this time"))
        } else if certificate.critical_options {
            Err(format!("its certificate \"{id}\" has critical options that haul does not know"))
        // As in OpenSSH since 10.3 (`sshkey_cert_check_host`), a certificate without names is for no host, and names
        // may be patterns; before, it was for any host, and patterns matched none. OpenSSH compares case-sensitively,
        // with the name of the host in lower case.
        } else if !certificate
            .principals
            .iter()
            .any(|name| super::pattern::matches(name, &self.host.host))
        {
            Err(format!(
                "its certificate \"{id}\" is for {}, not for {}",
                certificate.principals.join(", "),
                self.host.host
            ))
        } else {
            Ok(())
        }
    }

    async fn unknown(
        &self,
        key: &HostKey,
        others: &[(String, known_hosts::LineLocation)],
        fault: Option<String>,
    ) -> Result<()> {
        let mut decisions = self.decisions.lock().await;
        // Another key may have been accepted during the wait.
        self.check_pin(key)?;
        if decisions.accepted.as_ref() == Some(&key.blob) {
            return Ok(());
        }
        let mut cause = format!(
            "the {} host key of {} is not known ({})",
            key.kind(),
            self.host.name,
            key.fingerprint()
        );
        if let Some(fault) = fault {
            cause = format!("{cause}, and {fault}");
        }
        if let Some((other, location)) = others.first() {
            cause = format!("{cause}, although its {} key is ({location})", key::kind(other));
        }
        let accepted = match self.strict {
            StrictHostKeys::Yes => false,
            StrictHostKeys::No => true,
            // A host that is known by other keys is not new.
            StrictHostKeys::AcceptNew => others.is_empty(),
            StrictHostKeys::Ask if self.batch || decisions.refused.contains(&key.blob) => false,
            // Names in a certificate are chosen by the server: they must not start lines of their
            // own.
            StrictHostKeys::Ask => self.prompt(key, &text::line(&cause)).await?,
        };
        if !accepted {
            decisions.refused.push(key.blob.clone());
            let advice = match self.strict {
                StrictHostKeys::Yes => {
                    "StrictHostKeyChecking is yes; add the key to the known hosts"
                }
                StrictHostKeys::AcceptNew => {
                    "accept-new applies only to hosts without known keys; add this key yourself"
                }
                _ => {
                    "compare the fingerprint with the host's own (ssh-keygen -lf), then connect \
                     once with ssh, or use --accept-new-host-keys"
                }
            };
            return Err(self.refuse(cause).hinting(advice));
        }
        if !self.pin.hold(&key.blob) {
            return self.check_pin(key);
        }
        decisions.accepted = Some(key.blob.clone());
        self.remember(key).await;
        Ok(())
    }

    /// Prompts like OpenSSH: yes, no, or the fingerprint itself.
    async fn prompt(&self, key: &HostKey, cause: &str) -> Result<bool> {
        let fingerprint = key.fingerprint();
        let mut prompt =
            format!("{}: {cause}.\nContinue connecting (yes/no/[fingerprint])? ", self.location);
        loop {
            let Some(response) = self.prompter.visible(&prompt).await? else { return Ok(false) };
            let response = response.trim();
            if response.eq_ignore_ascii_case("yes") || response == fingerprint {
                return Ok(true);
            }
            if response.is_empty() || response.eq_ignore_ascii_case("no") {
                return Ok(false);
            }
            prompt = "Please type 'yes', 'no' or the fingerprint: ".to_owned();
        }
    }

    /// Stores an accepted key. A failure is reported but does not prevent the connection, since the
    /// key was accepted.
    async fn remember(&self, key: &HostKey) {
        let Some(file) = self.file.clone() else { return };
        let entry = NewEntry { name: &self.host.name, key, hashed: self.hashed };
        let text = match known_hosts::add(&file, &entry) {
            Ok(()) => format!(
                "{}: the {} host key {} was added to {}",
                self.location,
                key.kind(),
                key.fingerprint(),
                file.display()
            ),
            Err(error) => format!("warning: {error}"),
        };
        self.prompter.notice(&text).await;
    }

    fn refuse(&self, cause: String) -> Error {
        Error::new(ErrorKind::Unauthenticated, "verify the host key")
            .at(&self.location)
            .because(cause)
            .with_retry(Retry::Never)
    }
}
