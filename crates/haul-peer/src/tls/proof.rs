//! Proofs of the access secret.
//!
//! TLS authenticates the key of each side. In addition, both sides prove that they know the 16-byte
//! secret of the ticket, which admits the client to the share. A proof is
//!
//! ```text
//! key   = HKDF-SHA256(salt: none, secret, info: label, 32 bytes)
//! proof = HMAC-SHA256(key, field(exporter) field(client key) field(server key)
//!                          field(session id) field(nonce))
//! field(x) = u16 length of x (big-endian) | x
//! ```
//!
//! with the exporter value of the connection ([`exporter`]), both Ed25519 keys, the session id
//! (16 bytes; zero for the first lane), a nonce of the client (32 bytes) and these secrets and
//! labels:
//!
//! | lane | `secret` | proof of the client | proof of the server |
//! |---|---|---|---|
//! | first | the ticket's secret | `haul peer 1 client` | `haul peer 1 server` |
//! | others | the session's token | `haul peer 1 lane client` | `haul peer 1 lane server` |
//!
//! The session's token is 32 random bytes in the server's `Welcome` on the first lane. The server
//! verifies the client's proof before it computes its own, so that only a client that knows the
//! secret receives a proof.
//!
//! # What this prevents
//! - **Replay on another connection**: the exporter value depends on both sides' fresh key shares,
//!   so another connection has another value.
//! - **Relay by a man in the middle**: it has two connections with two exporter values, and can
//!   force neither to equal the other. Besides, its own key is not the one in the ticket. The
//!   exporter value covers the handshake up to the server's `Finished`, hence not the client's key
//!   (RFC 8446, 7.5); the proof names both keys itself.
//! - **Reflection to its sender**: the two sides' proofs have different keys, derived with different
//!   labels.
//! - **Use for another lane or session**: every lane has another exporter value, and the
//!   proof of a lane names its session and is made with the session's token under other labels.
//!   The proof of the secret opens new sessions only (session id zero); a token joins its own only.
//!
//! # What the other side learns
//! The secret is never sent. A client sends its proof only to the owner of the ticket's key,
//! usually the one who created the secret. If that server does not know the secret (a ticket
//! with the key of one share and the secret of another, or a secret that was deleted), it learns an
//! HMAC under a key derived from 128 random bits. It can test guesses against it offline, but that
//! takes 2^127 attempts on average (Grover's algorithm: some 2^64 in sequence), and as each proof
//! has another exporter value no work serves for two proofs. This depends on the secret being
//! random: words or passwords must never be used as a secret here (spoken codes go through SPAKE2,
//! which gives no offline test to either side).
//! A client that guesses has one attempt per handshake, and receives `Refused` without a proof.
//!
//! # For callers
//! - The client may send its proof and requests that change nothing right behind its `Finished`.
//!   They contain the path of the source or the destination. Before the client has verified the
//!   server's proof, it sends nothing else, above all no data and no request that changes anything;
//!   and it uses nothing of what it received.
//! - The server handles no request before it has verified the client's proof.
//! - The server compares the client's key of a further lane with that of the session's first lane.

use std::fmt;

use aws_lc_rs::{hkdf, hmac};
use haul_storage::{Error, ErrorKind, Result};
use rustls::ConnectionCommon;

/// The label of the TLS exporter (RFC 8446, 7.5).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-haul-peer-1";

/// Length in bytes of a proof.
pub const PROOF_LEN: usize = 32;

/// The side that makes a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that holds the ticket, and is the TLS client.
    Client,
    /// The side that shares, and is the TLS server.
    Server,
}

/// The connection that a proof is bound to.
#[derive(Clone, PartialEq, Eq)]
pub struct Binding {
    /// The connection's exporter value.
    pub exporter: [u8; 32],
    /// The client's Ed25519 key.
    pub client_key: [u8; 32],
    /// The server's Ed25519 key.
    pub server_key: [u8; 32],
    /// The session that the lane joins; zero for the first lane.
    pub session: [u8; 16],
    /// Random bytes that the client chooses for each lane.
    pub nonce: [u8; 32],
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").finish_non_exhaustive()
    }
}

/// Labels of the client's and the server's key from a ticket's secret.
const FROM_SECRET: [&[u8]; 2] = [b"haul peer 1 client", b"haul peer 1 server"];

/// Labels of the client's and the server's key from a session's token.
const FROM_TOKEN: [&[u8]; 2] = [b"haul peer 1 lane client", b"haul peer 1 lane server"];

/// The keys of both sides' proofs. A key from a secret and one from a token never make the same
/// proofs, as they have other labels.
#[derive(Clone)]
pub struct ProofKey {
    client: hmac::Key,
    server: hmac::Key,
}

impl ProofKey {
    /// For first lanes: from the secret of a ticket, which must be random.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn from_secret(secret: &[u8; 16]) -> Result<Self> {
        Self::derive(secret, FROM_SECRET)
    }

    /// For the other lanes of a session: from the session's token.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn from_token(token: &[u8; 32]) -> Result<Self> {
        Self::derive(token, FROM_TOKEN)
    }

    fn derive(secret: &[u8], [client, server]: [&[u8]; 2]) -> Result<Self> {
        let secret = hkdf::Salt::none(hkdf::HKDF_SHA256).extract(secret);
        let key = |label: &[u8]| match secret.expand(&[label], hmac::HMAC_SHA256) {
            Ok(key) => Ok(hmac::Key::from(key)),
            Err(_) => Err(Error::new(ErrorKind::Other, "derive a key")),
        };
        Ok(Self { client: key(client)?, server: key(server)? })
    }

    fn of(&self, role: Role) -> &hmac::Key {
        match role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofKey").finish_non_exhaustive()
    }
}

/// The proof of the side `role`.
pub fn prove(key: &ProofKey, role: Role, binding: &Binding) -> [u8; PROOF_LEN] {
    let tag = hmac::sign(key.of(role), &message(binding));
    let mut proof = [0; PROOF_LEN];
    proof.copy_from_slice(tag.as_ref());
    proof
}

/// Whether `proof` is that of the side `role`, in time independent of its bytes.
pub fn verify(key: &ProofKey, role: Role, binding: &Binding, proof: &[u8]) -> bool {
    hmac::verify(key.of(role), &message(binding), proof).is_ok()
}

/// The exporter value of a connection (a client's or a server's).
///
/// # Errors
/// Before the handshake has finished.
pub fn exporter<Data>(connection: &ConnectionCommon<Data>) -> Result<[u8; 32]> {
    connection
        .export_keying_material([0; 32], EXPORTER_LABEL, None)
        .map_err(|error| Error::new(ErrorKind::Other, "derive a key").with_source(error))
}

fn message(binding: &Binding) -> Vec<u8> {
    let Binding { exporter, client_key, server_key, session, nonce } = binding;
    let fields: [&[u8]; 5] = [exporter, client_key, server_key, session, nonce];
    let mut message = Vec::with_capacity(160);
    for field in fields {
        message.extend_from_slice(&(field.len() as u16).to_be_bytes());
        message.extend_from_slice(field);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(session: [u8; 16]) -> Binding {
        let exporter = std::array::from_fn(|at| at as u8);
        Binding {
            exporter,
            client_key: [0xc1; 32],
            server_key: [0x51; 32],
            session,
            nonce: [0x4e; 32],
        }
    }

    fn keys() -> (ProofKey, ProofKey) {
        let secret = std::array::from_fn(|at| 0x10 + at as u8);
        let token = std::array::from_fn(|at| 0x20 + at as u8);
        (ProofKey::from_secret(&secret).unwrap(), ProofKey::from_token(&token).unwrap())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed with Python's `hmac` and `hashlib`. A change of these values is a change of the
    /// protocol.
    #[test]
    fn proofs_are_those_of_the_documented_formula() {
        let (secret, token) = keys();
        let (first, lane) = (binding([0; 16]), binding(std::array::from_fn(|at| 1 + at as u8)));
        let known = [
            (
                prove(&secret, Role::Client, &first),
                "b7a760703f3ac803a3793e45f6eb86fa2a9bd3b5d86c791f50d745adf8eff05c",
            ),
            (
                prove(&secret, Role::Server, &first),
                "11c5a7c7cfdd7f1ec9f66fb57cfa278c2d5a27da558a9510634fb8d4d7c84eee",
            ),
            (
                prove(&token, Role::Client, &lane),
                "16c1c883b305f11145decb38c91ec78e2002d9420b8ec5292cd736ced18fa0ac",
            ),
            (
                prove(&token, Role::Server, &lane),
                "3565a932697592cb404952eba766b3af54a9e7504c4ab5b777363fc2f6a83e3d",
            ),
        ];
        for (proof, expected) in known {
            assert_eq!(hex(&proof), expected);
        }
    }

    #[test]
    fn a_proof_is_valid_for_its_key_role_and_binding_only() {
        let (secret, token) = keys();
        let good = binding([0; 16]);
        let proof = prove(&secret, Role::Client, &good);
        assert!(verify(&secret, Role::Client, &good, &proof));
        assert!(!verify(&secret, Role::Server, &good, &proof), "reflected");
        assert!(!verify(&token, Role::Client, &good, &proof), "another key");
        let other = ProofKey::from_secret(&[0x10; 16]).unwrap();
        assert!(!verify(&other, Role::Client, &good, &proof), "another secret");
        let changes: [fn(&mut Binding); 6] = [
            |binding| binding.exporter[31] ^= 1,
            |binding| binding.client_key[0] ^= 1,
            |binding| binding.server_key[0] ^= 1,
            |binding| binding.session[15] ^= 1,
            |binding| binding.nonce[0] ^= 0x80,
            |binding| std::mem::swap(&mut binding.client_key, &mut binding.server_key),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut changed = good.clone();
            change(&mut changed);
            assert!(!verify(&secret, Role::Client, &changed, &proof), "change {at}");
        }
    }

    #[test]
    fn a_secret_and_a_token_of_the_same_bytes_make_different_proofs() {
        let secret = ProofKey::derive(&[7; 16], FROM_SECRET).unwrap();
        let token = ProofKey::derive(&[7; 16], FROM_TOKEN).unwrap();
        let binding = binding([0; 16]);
        for role in [Role::Client, Role::Server] {
            assert_ne!(prove(&secret, role, &binding), prove(&token, role, &binding));
        }
    }

    #[test]
    fn a_proof_that_is_cut_extended_or_altered_is_refused() {
        let (secret, _) = keys();
        let binding = binding([0; 16]);
        let proof = prove(&secret, Role::Server, &binding);
        let refused = |proof: &[u8]| !verify(&secret, Role::Server, &binding, proof);
        assert!(refused(&[]) && refused(&proof[..31]) && refused(&[&proof[..], &[0]].concat()));
        for at in 0..proof.len() {
            let mut altered = proof;
            altered[at] ^= 1;
            assert!(refused(&altered), "byte {at}");
        }
    }

    #[test]
    fn debug_output_contains_no_key() {
        let (secret, _) = keys();
        assert_eq!(format!("{secret:?}"), "ProofKey { .. }");
        assert_eq!(format!("{:?}", binding([0; 16])), "Binding { .. }");
    }
}
