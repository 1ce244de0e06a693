//! The identity of this peer, the peers that it knows, and the access that it has granted, in four files of the state
//! directory.
//!
//! | file | type | content |
//! |---|---|---|
//! | `identity.pem` | [`Identity`] | the Ed25519 key pair |
//! | `codes.toml` | [`Fetched`] | tickets that were fetched by a spoken code, for a day |
//! | `peers.toml` | [`Peers`] | peers by name: key, last addresses, bridge, secret |
//! | `shares.toml` | [`Shares`] | hashes of handed-out secrets, secrets of stored shares; which are used or revoked |
//!
//! All have mode 0600, and are refused if others have access to them. A change is made under a lock, replaces the file
//! atomically and is on disk when the method returns. All methods block: async callers use a blocking thread. Times
//! are seconds since 1970, passed in by the caller.

mod fetched;
mod file;
mod key_pair;
mod peers;
mod shares;

pub use fetched::Fetched;
pub use key_pair::{Identity, key_of_spki};
pub use peers::{Peer, Peers};
pub use shares::{Grant, Refusal, Share, ShareId, Shares, StoredShare, Terms};
