//! The user's keys from the agent and from files, in the order in which they are offered.
//!
//! They are gathered while the connection is being established. The user is prompted for a passphrase only
//! after a server has indicated that it accepts the key, or if the public key is unknown without it.
//!
//! Keys that the user named come first (OpenSSH offers all keys of the agent before key files): servers
//! allow only a few attempts, and each costs an RTT.

mod agent;
mod file;
mod pem;
mod short;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use haul_storage::{Error, ErrorKind, Result};
use russh::keys::agent::AgentIdentity;
use russh::keys::ssh_encoding::Encode;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{Certificate, HashAlg, PrivateKey, PublicKey, signature};
use tokio::sync::OnceCell;

use self::file::{Found, KeyFile};
use super::choice::CERTIFICATE;
use super::config::HostConfig;
use super::options::Prompter;
use super::transport::{PublicHalf, RSA_SIGNATURES, SignWith};

/// The keys that were found, and why others are unusable.
#[derive(Debug, Default)]
pub struct Identities {
    /// In the order in which they are offered.
    pub candidates: Vec<Arc<Candidate>>,
    /// Unusable keys with reasons, for the error message.
    pub notes: Vec<String>,
}

/// A key, or a certificate for it, to offer.
pub struct Candidate {
    /// The origin, for messages.
    name: String,
    /// `None` for an encrypted key whose public key is unknown.
    public: Option<PublicKey>,
    certificate: Option<Certificate>,
    source: Source,
}

enum Source {
    /// The agent signs. `unnamed`: no file names the key, and it is one of several in the agent.
    Agent { socket: PathBuf, identity: Box<AgentIdentity>, unnamed: bool },
    /// The key is in a file. Several candidates may share a file, and its passphrase.
    File(Arc<KeyInFile>),
}

/// A private key in a file, decrypted or not.
pub struct KeyInFile {
    file: KeyFile,
    key: OnceCell<Arc<PrivateKey>>,
}

/// How to prompt for passphrases, and how often.
#[derive(Debug, Clone)]
pub struct PassphrasePrompts {
    /// The prompter.
    pub prompter: Arc<dyn Prompter>,
    /// Attempts per passphrase; 0 without a user to prompt.
    pub attempts: u32,
}

/// Gathers all keys of a configuration.
pub async fn gather(config: HostConfig) -> Identities {
    let listing = agent::list(config.agent.as_deref());
    let files = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || read_files(&config))
    };
    let (held, files) = tokio::join!(listing, files);
    let mut identities = Identities::default();
    let held = held.unwrap_or_else(|note| {
        identities.notes.push(note);
        Vec::new()
    });
    let (files, certificates) = files.unwrap_or_else(|error| {
        identities.notes.push(format!("the key files could not be read: {error}"));
        Default::default()
    });
    arrange(&config, held, files, &certificates, identities)
}

fn read_files(config: &HostConfig) -> (Vec<(PathBuf, Found)>, Vec<Certificate>) {
    let found = |path: &PathBuf| (path.clone(), file::read(path));
    let files: Vec<_> = config.identity_files.iter().map(found).collect();
    let beside = config.identity_files.iter().map(|path| file::beside(path, "-cert.pub"));
    let certificates = config.certificate_files.iter().cloned().chain(beside);
    // An unreadable certificate is ignored, and its key is offered alone.
    let certificates =
        certificates.filter_map(|path| russh::keys::load_openssh_certificate(path).ok());
    (files, certificates.collect())
}

fn arrange(
    config: &HostConfig,
    held: Vec<AgentIdentity>,
    files: Vec<(PathBuf, Found)>,
    certificates: &[Certificate],
    mut identities: Identities,
) -> Identities {
    let socket = config.agent.clone().unwrap_or_default();
    // The agent may list a key twice: alone, and with its certificate.
    let of_one_key =
        |pair: &[AgentIdentity]| pair[0].public_key().key_data() == pair[1].public_key().key_data();
    let are_several = !held.windows(2).all(of_one_key);
    let mut unused: Vec<Option<AgentIdentity>> = held.into_iter().map(Some).collect();
    let mut from_files = Vec::new();
    for (path, found) in files {
        let name = path.display().to_string();
        let public = match &found {
            Found::Private(file) => file.public.clone(),
            Found::PublicOnly(public) | Found::Unusable(_, Some(public)) => Some(public.clone()),
            Found::Missing | Found::Unusable(_, None) => None,
        };
        let of_key = |certificate: &&Certificate| {
            public.as_ref().is_some_and(|key| key.key_data() == certificate.public_key())
        };
        let certificates: Vec<Certificate> = certificates.iter().filter(of_key).cloned().collect();
        // Keys in the agent are decrypted already.
        let mut in_agent = take_from_agent(&mut unused, public.as_ref());
        let mut add = |candidate: Candidate| from_files.push(Arc::new(candidate));
        if let Some(plain) =
            in_agent.iter().find(|one| matches!(one, AgentIdentity::PublicKey { .. }))
        {
            for certificate in certificates {
                let identity = plain.clone();
                add(Candidate::in_agent(&socket, identity, Some(certificate), Some(&name)));
            }
            in_agent.sort_by_key(|one| matches!(one, AgentIdentity::PublicKey { .. }));
            for identity in in_agent {
                add(Candidate::in_agent(&socket, identity, None, Some(&name)));
            }
            continue;
        }
        for identity in in_agent {
            add(Candidate::in_agent(&socket, identity, None, Some(&name)));
        }
        match found {
            Found::Private(file) => {
                let public = file.public.clone();
                let from_file = Arc::new(KeyInFile { file, key: OnceCell::new() });
                let offers = certificates.into_iter().map(Some).chain([None]);
                for certificate in offers {
                    add(Candidate {
                        name: name.clone(),
                        public: public.clone(),
                        certificate,
                        source: Source::File(Arc::clone(&from_file)),
                    });
                }
            }
            Found::Unusable(why, _) => identities.notes.push(format!("{name}: {why}")),
            Found::Missing if config.identities_named => {
                identities.notes.push(format!("{name}: no such file"));
            }
            Found::PublicOnly(_) if config.identities_named => {
                identities.notes.push(format!("{name}: the agent does not hold its private half"));
            }
            Found::Missing | Found::PublicOnly(_) => {}
        }
    }
    let others = unused.into_iter().flatten().filter(|_| !config.identities_only);
    let others: Vec<_> = others
        .map(|identity| Candidate::in_agent(&socket, identity, None, None))
        .map(|candidate| Arc::new(if are_several { candidate.unnamed() } else { candidate }))
        .collect();
    identities.candidates = if config.identities_named {
        [from_files, others].concat()
    } else {
        [others, from_files].concat()
    };
    identities
}

/// Removes the identities with this key from those of the agent, and returns them.
fn take_from_agent(
    unused: &mut [Option<AgentIdentity>],
    public: Option<&PublicKey>,
) -> Vec<AgentIdentity> {
    let mut taken = Vec::new();
    for slot in unused {
        let is_same = |identity: &AgentIdentity| {
            public.is_some_and(|key| key.key_data() == identity.public_key().key_data())
        };
        if slot.as_ref().is_some_and(is_same) {
            taken.extend(slot.take());
        }
    }
    taken
}

impl Identities {
    /// The key that is certain to be tried first and needs no prompt: one that the user named, or
    /// the only one.
    pub fn obvious(&self, named: bool) -> Option<&Arc<Candidate>> {
        let first = self.candidates.first()?;
        let alone = self.candidates.len() == 1;
        let silent = match &first.source {
            Source::Agent { unnamed, .. } => !unnamed,
            Source::File(from_file) => !from_file.file.encrypted,
        };
        Some(first).filter(|_| (named || alone) && silent)
    }
}

impl Candidate {
    fn in_agent(
        socket: &Path,
        identity: AgentIdentity,
        certificate: Option<Certificate>,
        file: Option<&str>,
    ) -> Self {
        let public = identity.public_key().into_owned();
        let certificate = certificate.or_else(|| match &identity {
            AgentIdentity::Certificate { certificate, .. } => Some(certificate.clone()),
            AgentIdentity::PublicKey { .. } => None,
        });
        let name = match file {
            Some(file) => format!("{file} (agent)"),
            None => format!("{} (agent)", identity.comment()),
        };
        let identity = Box::new(identity);
        let source = Source::Agent { socket: socket.to_owned(), identity, unnamed: false };
        Self { name, public: Some(public), certificate, source }
    }

    fn unnamed(mut self) -> Self {
        if let Source::Agent { unnamed, .. } = &mut self.source {
            *unnamed = true;
        }
        self
    }

    /// Origin, type and fingerprint, for messages.
    pub fn describe(&self) -> String {
        let certificate = if self.certificate.is_some() { " with certificate" } else { "" };
        match &self.public {
            Some(key) => format!(
                "key {} {} {}{certificate}",
                self.name,
                super::key::kind(key.algorithm().as_str()),
                key.fingerprint(HashAlg::Sha256)
            ),
            None => format!("key {}{certificate}", self.name),
        }
    }

    /// The public key or certificate to offer. If it is unknown, the key is decrypted first.
    ///
    /// # Errors
    /// If the key cannot be decrypted.
    pub async fn public_half(&self, prompts: &PassphrasePrompts) -> Result<PublicHalf> {
        if let Some(certificate) = &self.certificate {
            return Ok(PublicHalf::Certificate(Box::new(certificate.clone())));
        }
        match (&self.public, &self.source) {
            (None, Source::File(from_file)) => {
                Ok(PublicHalf::Key(from_file.unlock(prompts).await?.public_key().clone()))
            }
            (Some(key), _) => Ok(PublicHalf::Key(key.clone())),
            (None, Source::Agent { identity, .. }) => {
                Ok(PublicHalf::Key(identity.public_key().into_owned()))
            }
        }
    }

    /// Whether the configuration permits offering this key; the error has the reason.
    ///
    /// # Errors
    /// If PubkeyAcceptedAlgorithms or RequiredRSASize exclude it.
    pub fn check(&self, half: &PublicHalf, config: &HostConfig) -> Result<()> {
        let (algorithm, suffix, rsa) = match half {
            PublicHalf::Key(key) => (key.algorithm(), "", key.key_data().rsa()),
            PublicHalf::Certificate(certificate) => {
                (certificate.algorithm(), CERTIFICATE, certificate.public_key().rsa())
            }
        };
        let refuse = |cause| {
            Error::new(ErrorKind::Unauthenticated, "offer the key").at(&self.name).because(cause)
        };
        if let Some(bits) =
            rsa.map(|key| key.key_size()).filter(|&bits| bits < config.required_rsa_bits)
        {
            let least = config.required_rsa_bits;
            return Err(refuse(format!("it has {bits} bits, and RequiredRSASize is {least}")));
        }
        let accepted = |name: &str| config.user_keys.contains(&name);
        let is_accepted = match rsa {
            Some(_) => RSA_SIGNATURES.iter().any(|(name, _)| accepted(&format!("{name}{suffix}"))),
            None if suffix.is_empty() => accepted(algorithm.as_str()),
            None => accepted(&algorithm.to_certificate_type()),
        };
        if is_accepted {
            return Ok(());
        }
        let name = if suffix.is_empty() {
            algorithm.as_str().to_owned()
        } else {
            algorithm.to_certificate_type()
        };
        Err(refuse(format!("PubkeyAcceptedAlgorithms does not include {name}")))
    }

    /// A signer for this key. `is_likely`: the server has accepted it before, or it is the obvious one.
    pub fn signer<'a>(&'a self, prompts: &'a PassphrasePrompts, is_likely: bool) -> Signing<'a> {
        Signing { candidate: self, prompts, is_likely }
    }
}

impl KeyInFile {
    /// The private key; prompts for its passphrase the first time.
    async fn unlock(&self, prompts: &PassphrasePrompts) -> Result<&Arc<PrivateKey>> {
        self.key.get_or_try_init(|| self.decrypt(prompts)).await
    }

    async fn decrypt(&self, prompts: &PassphrasePrompts) -> Result<Arc<PrivateKey>> {
        let path = self.file.path.display();
        if let Some(key) = self.file.plain().map_err(|cause| locked(&self.file.path, cause))? {
            return Ok(Arc::new(key));
        }
        let prompt = format!("Enter passphrase for key '{path}': ");
        for _ in 0..prompts.attempts {
            let Some(passphrase) = prompts.prompter.secret(&prompt).await? else { break };
            if passphrase.expose().is_empty() {
                break;
            }
            // Deriving the key takes about a second of processor time.
            let file = self.file.clone();
            let unlocked = tokio::task::spawn_blocking(move || file.unlock(&passphrase)).await;
            match unlocked {
                Ok(Ok(key)) => return Ok(Arc::new(key)),
                Ok(Err(cause)) => {
                    prompts.prompter.notice(&format!("{path}: {cause}")).await;
                }
                Err(error) => return Err(locked(&self.file.path, error.to_string())),
            }
        }
        Err(locked(&self.file.path, "it is encrypted, and its passphrase was not given".to_owned()))
    }
}

fn locked(path: &Path, cause: String) -> Error {
    Error::new(ErrorKind::Unauthenticated, "use the key").at(path.display()).because(cause)
}

/// Signs with a candidate.
#[derive(Debug)]
pub struct Signing<'a> {
    candidate: &'a Candidate,
    prompts: &'a PassphrasePrompts,
    is_likely: bool,
}

#[async_trait]
impl SignWith for Signing<'_> {
    /// A security key has to be touched, and an encrypted file needs its passphrase. An agent may prompt for each
    /// signature (`ssh-add -c`, or a smart card), so one of several keys that no file names signs only if the server
    /// is likely to accept it.
    fn is_silent(&self) -> bool {
        let touched = |key: &PublicKey| key.algorithm().as_str().starts_with("sk-");
        if self.candidate.public.as_ref().is_some_and(touched) {
            return false;
        }
        match &self.candidate.source {
            Source::Agent { unnamed, .. } => self.is_likely || !unnamed,
            Source::File(from_file) => !from_file.file.encrypted || from_file.key.initialized(),
        }
    }

    async fn sign(&mut self, mut data: Vec<u8>, hash: Option<HashAlg>) -> Result<Vec<u8>> {
        match &self.candidate.source {
            Source::Agent { socket, identity, .. } => {
                // For a certificate from a file, the agent signs with the plain key.
                agent::sign(socket, identity, hash, data).await
            }
            Source::File(from_file) => {
                let key = from_file.unlock(self.prompts).await?;
                let failed = |cause: String| locked(&from_file.file.path, cause);
                let made = signed(key, &data, hash).map_err(failed)?;
                made.encode_prefixed(&mut data).map_err(|error| failed(error.to_string()))?;
                Ok(data)
            }
        }
    }
}

fn signed(
    key: &PrivateKey,
    data: &[u8],
    hash: Option<HashAlg>,
) -> Result<russh::keys::ssh_key::Signature, String> {
    use signature::Signer;
    let made = match key.key_data() {
        KeypairData::Rsa(pair) => (pair, hash).try_sign(data),
        _ => key.try_sign(data),
    };
    made.map_err(|error| error.to_string())
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Candidate({})", self.describe())
    }
}
