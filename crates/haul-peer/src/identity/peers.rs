//! The peers that the user has named: `peer:NAME/path` reaches them without a ticket.

use std::collections::BTreeMap;
use std::path::Path;

use haul_storage::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::file::PrivateFile;
use crate::ticket::{Address, BridgeAddress, MAX_ADDRESSES, PeerKey, Secret, Ticket, base32};

/// The first line of the file.
const COMMENT: &str = "# Peers known to haul. It contains secrets. Change it with `haul peers`.";

/// Longest name in bytes.
const MAX_NAME: usize = 64;

/// What is known of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its public key.
    pub key: PeerKey,
    /// Its last addresses, the preferred ones first. At most [`MAX_ADDRESSES`] are saved.
    pub addresses: Vec<Address>,
    /// The bridge through which it can be reached.
    pub bridge: Option<BridgeAddress>,
    /// The secret of its last ticket.
    pub secret: Option<Secret>,
    /// When it was added, in seconds since 1970.
    pub first_seen: u64,
    /// When its last ticket was added, in seconds since 1970.
    pub last_seen: u64,
}

impl Peer {
    /// What a ticket states about its sharer, seen at `now`.
    pub fn of_ticket(ticket: &Ticket, now: u64) -> Self {
        Self {
            key: ticket.key,
            addresses: ticket.addresses().to_vec(),
            bridge: ticket.bridge.clone(),
            secret: Some(ticket.secret.clone()),
            first_seen: now,
            last_seen: now,
        }
    }

    /// A ticket that reaches the peer; `None` without a secret.
    pub fn ticket(&self) -> Option<Ticket> {
        let ticket = Ticket::new(self.key, self.secret.clone()?);
        let mut ticket = ticket.with_addresses(self.addresses.iter().copied());
        ticket.bridge.clone_from(&self.bridge);
        Some(ticket)
    }
}

/// The list of known peers in a file. Nothing is cached in memory. Changes are made under a lock: none is lost.
#[derive(Debug, Clone)]
pub struct Peers {
    file: PrivateFile,
}

#[derive(Default, Serialize, Deserialize)]
struct Records {
    #[serde(default)]
    peer: BTreeMap<String, Record>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    key: String,
    secret: Option<String>,
    #[serde(default)]
    addresses: Vec<String>,
    bridge: Option<String>,
    bridge_key: Option<String>,
    first_seen: u64,
    last_seen: u64,
}

impl Peers {
    /// The list in the file at `path`, which need not exist.
    pub fn at(path: &Path) -> Self {
        let (read, change) = ("read the list of peers", "change the list of peers");
        Self { file: PrivateFile { path: path.to_owned(), read, change } }
    }

    /// All peers by name.
    ///
    /// # Errors
    /// If the file cannot be read, is malformed, is accessible to others or belongs to another user.
    pub fn list(&self) -> Result<BTreeMap<String, Peer>> {
        let records: Records = self.file.parsed()?;
        let peers = records.peer.into_iter().map(|(name, record)| match record.into_peer() {
            Ok(peer) => Ok((name, peer)),
            Err(cause) => Err(self.file.refused(format!("peer {name}: its {cause} is malformed"))),
        });
        peers.collect()
    }

    /// The peer of this name.
    ///
    /// # Errors
    /// As for [`Peers::list`].
    pub fn by_name(&self, name: &str) -> Result<Option<Peer>> {
        Ok(self.list()?.remove(name))
    }

    /// Adds a peer, or updates the one of this name and key, whose `first_seen` does not change. A name has 1 to 64
    /// ASCII letters, digits and `-`, `_`, `.`, and begins with a letter or digit.
    ///
    /// # Errors
    /// `AlreadyExists` if another peer has this name, or the peer has another name; `InvalidInput` if the name is
    /// invalid; and as for [`Peers::list`], or if the file cannot be written.
    pub fn add(&self, name: &str, peer: &Peer) -> Result<()> {
        self.check_name(name)?;
        self.change(|peers| {
            let same = peers.iter().find(|(_, known)| known.key == peer.key);
            if let Some((other, _)) = same.filter(|(other, _)| *other != name) {
                return Err(self.exists(format!("this peer is already known as {other}")));
            }
            let mut peer = peer.clone();
            if let Some(known) = peers.get(name) {
                if known.key != peer.key {
                    return Err(self.exists(format!("another peer is known as {name}")));
                }
                peer.first_seen = known.first_seen;
            }
            peers.insert(name.to_owned(), peer);
            Ok(())
        })
    }

    /// Gives a peer another name.
    ///
    /// # Errors
    /// `NotFound` if no peer has the old name; otherwise as for [`Peers::add`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_name(to)?;
        self.change(|peers| {
            if from != to && peers.contains_key(to) {
                return Err(self.exists(format!("another peer is known as {to}")));
            }
            let peer = peers.remove(from).ok_or_else(|| self.unknown(from))?;
            peers.insert(to.to_owned(), peer);
            Ok(())
        })
    }

    /// Forgets a peer.
    ///
    /// # Errors
    /// `NotFound` if no peer has this name; as for [`Peers::list`], or if the file cannot be written.
    pub fn forget(&self, name: &str) -> Result<()> {
        self.change(|peers| peers.remove(name).map(drop).ok_or_else(|| self.unknown(name)))
    }

    /// Changes the file under its lock; it is unchanged if `edit` fails.
    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, Peer>) -> Result<()>) -> Result<()> {
        let lock = self.file.lock()?;
        let mut peers = self.list()?;
        edit(&mut peers)?;
        let peer = peers.iter().map(|(name, peer)| (name.clone(), Record::of_peer(peer))).collect();
        self.file.write(COMMENT, &Records { peer }, &lock)
    }

    /// Checks a name as [`Peers::add`] does.
    ///
    /// # Errors
    /// `InvalidInput` if the name is invalid.
    pub fn check_name(&self, name: &str) -> Result<()> {
        let is_valid = name.len() <= MAX_NAME
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if is_valid {
            return Ok(());
        }
        let cause = "a peer's name has 1 to 64 letters (a to z), digits and '-', '_', '.', and \
                     begins with a letter or digit";
        Err(Error::new(ErrorKind::InvalidInput, self.file.change).at(name).because(cause))
    }

    fn exists(&self, cause: String) -> Error {
        self.error(ErrorKind::AlreadyExists, cause)
    }

    fn unknown(&self, name: &str) -> Error {
        self.error(ErrorKind::NotFound, format!("no peer is known as {name}"))
    }

    fn error(&self, kind: ErrorKind, cause: String) -> Error {
        Error::new(kind, self.file.change).at(self.file.path.display()).because(cause)
    }
}

impl Record {
    fn of_peer(peer: &Peer) -> Self {
        let bridge = peer.bridge.as_ref();
        let bridge_key = bridge.and_then(|bridge| bridge.key);
        Self {
            key: peer.key.to_text(),
            secret: peer.secret.as_ref().map(|secret| base32::encode(secret.expose()).to_string()),
            addresses: peer.addresses.iter().take(MAX_ADDRESSES).map(Address::to_string).collect(),
            bridge: bridge.map(BridgeAddress::to_string),
            bridge_key: bridge_key.map(|key| base32::encode(&key).to_string()),
            first_seen: peer.first_seen,
            last_seen: peer.last_seen,
        }
    }

    /// # Errors
    /// The name of a malformed value.
    fn into_peer(self) -> Result<Peer, &'static str> {
        let secret = self.secret.map(|text| base32::decode_array(&text).ok_or("secret"));
        let bridge_key =
            self.bridge_key.map(|text| base32::decode_array(&text).ok_or("bridge_key"));
        let bridge_key = bridge_key.transpose()?;
        let bridge = self.bridge.map(|text| text.parse::<BridgeAddress>().map_err(|_| "bridge"));
        let addresses =
            self.addresses.iter().map(|text| text.parse::<Address>().map_err(|_| "addresses"));
        Ok(Peer {
            key: self.key.parse::<PeerKey>().map_err(|_| "key")?,
            secret: secret.transpose()?.map(Secret::new),
            addresses: addresses.collect::<Result<Vec<_>, _>>()?,
            bridge: bridge.transpose()?.map(|bridge| bridge.with_key(bridge_key)),
            first_seen: self.first_seen,
            last_seen: self.last_seen,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn peer(n: u8) -> Peer {
        let bridge = BridgeAddress::new("bridge.example", 443).unwrap();
        Peer {
            key: PeerKey([n; 32]),
            addresses: vec!["192.0.2.1:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap()],
            bridge: Some(bridge.with_key(Some([9; 32]))),
            secret: Some(Secret::new([n; 16])),
            first_seen: 10,
            last_seen: 20,
        }
    }

    fn in_new_directory() -> (tempfile::TempDir, Peers) {
        let directory = tempfile::tempdir().unwrap();
        let peers = Peers::at(&directory.path().join("haul/peers.toml"));
        (directory, peers)
    }

    #[test]
    fn a_peer_is_read_as_it_was_added() {
        let (_directory, peers) = in_new_directory();
        assert!(peers.list().unwrap().is_empty());
        let bare = Peer { addresses: Vec::new(), bridge: None, secret: None, ..peer(2) };
        peers.add("nas", &peer(1)).unwrap();
        peers.add("2nd.one_more-name", &bare).unwrap();
        assert_eq!(peers.by_name("nas").unwrap(), Some(peer(1)));
        assert_eq!(peers.by_name("other").unwrap(), None);
        assert_eq!(peers.by_name("2nd.one_more-name").unwrap(), Some(bare));
        assert_eq!(peers.list().unwrap().len(), 2);
        assert_eq!(fs::metadata(&peers.file.path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_peer_returns_the_ticket_that_it_was_made_from() {
        let ticket = peer(1).ticket().unwrap();
        let of_ticket = Peer::of_ticket(&ticket, 10);
        assert_eq!(of_ticket, Peer { last_seen: 10, ..peer(1) });
        assert_eq!(of_ticket.ticket(), Some(ticket));
        assert_eq!(Peer { secret: None, ..peer(1) }.ticket(), None);
    }

    #[test]
    fn a_peer_that_is_added_again_is_updated() {
        let (_directory, peers) = in_new_directory();
        peers.add("nas", &peer(1)).unwrap();
        let later = Peer { first_seen: 50, last_seen: 50, secret: None, ..peer(1) };
        peers.add("nas", &later).unwrap();
        let found = peers.by_name("nas").unwrap().unwrap();
        assert_eq!((found.first_seen, found.last_seen, found.secret), (10, 50, None));
    }

    #[test]
    fn a_name_belongs_to_one_peer_and_a_peer_has_one_name() {
        let (_directory, peers) = in_new_directory();
        peers.add("a", &peer(1)).unwrap();
        peers.add("b", &peer(2)).unwrap();
        for error in [
            peers.add("a", &peer(3)).unwrap_err(),
            peers.add("c", &peer(1)).unwrap_err(),
            peers.rename("a", "b").unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        }
        assert_eq!(peers.list().unwrap().len(), 2);
    }

    #[test]
    fn a_peer_is_renamed_and_forgotten() {
        let (_directory, peers) = in_new_directory();
        peers.add("a", &peer(1)).unwrap();
        peers.rename("a", "b").unwrap();
        peers.rename("b", "b").unwrap();
        assert_eq!(peers.rename("a", "c").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(peers.by_name("b").unwrap(), Some(peer(1)));
        peers.forget("b").unwrap();
        assert_eq!(peers.forget("b").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(peers.list().unwrap().is_empty());
    }

    #[test]
    fn a_name_that_could_be_mistaken_for_something_else_is_refused() {
        let (_directory, peers) = in_new_directory();
        for name in ["", "a/b", "-a", ".a", "a b", "a:b", "ü", &"a".repeat(65)] {
            let error = peers.add(name, &peer(1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        }
        peers.add(&"a".repeat(64), &peer(1)).unwrap();
    }

    #[test]
    fn no_peer_is_lost_when_several_threads_add_at_once() {
        let (_directory, peers) = in_new_directory();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let peers = &peers;
                scope.spawn(move || peers.add(&format!("p{n}"), &peer(n + 1)).unwrap());
            }
        });
        assert_eq!(peers.list().unwrap().len(), 8);
    }

    #[test]
    fn an_error_names_the_peer_of_a_malformed_value_but_does_not_quote_it() {
        let (_directory, peers) = in_new_directory();
        peers.add("nas", &peer(1)).unwrap();
        let text = fs::read_to_string(&peers.file.path).unwrap();
        fs::write(&peers.file.path, text.replace("secret = \"", "secret = \"hunter2")).unwrap();
        fs::set_permissions(&peers.file.path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = peers.list().unwrap_err().to_string();
        assert!(error.contains("peer nas: its secret is malformed"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
