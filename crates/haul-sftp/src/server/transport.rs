//! The server's SSH configuration: algorithms, windows, limits.

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::server::Config;
use russh::{Limits, MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex, mac};

use super::credentials::Credentials;
use super::host_key::HostKey;
use super::limits;

/// Delay of a refusal, whatever the reason.
pub(super) const REFUSAL: Duration = Duration::from_millis(500);

/// Interval of keepalives on a silent connection, and how many may remain unanswered. A client that
/// vanishes is noticed within two minutes.
const SILENCE: Duration = Duration::from_secs(30);
const KEEPALIVES: usize = 3;

/// Messages queued for the SSH library: with responses of 255 KiB, data between encryption and
/// sending stays within a processor's cache.
const OUTGOING: usize = 4;

/// Packets of a channel queued for its session.
const INCOMING: usize = 32;

/// Bytes after which keys are exchanged again. RFC 4344 (section 3.2) allows 2^32 blocks, which is
/// 64 GiB of AES; this leaves room for a packet that is counted late.
const REKEY: usize = 32 << 30;

const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::DH_G16_SHA512,
    kex::DH_G14_SHA256,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

/// The client's preference decides (RFC 4253, 7.1); the order here has no effect.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_128_GCM,
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_128_CTR,
    cipher::AES_192_CTR,
    cipher::AES_256_CTR,
];

const MACS: &[mac::Name] =
    &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM, mac::HMAC_SHA256, mac::HMAC_SHA512];

const COMPRESSION: &[compression::Name] = &[compression::NONE, compression::ZLIB_LEGACY];

const KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// The configuration of all connections.
pub(super) fn config(host_key: &HostKey, credentials: &Credentials) -> Config {
    let mut methods = MethodSet::empty();
    if credentials.has_keys() {
        methods.push(MethodKind::PublicKey);
    }
    if credentials.has_password() {
        methods.push(MethodKind::Password);
    }
    Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-haul_",
            env!("CARGO_PKG_VERSION")
        ))),
        methods,
        auth_rejection_time: REFUSAL,
        // A request with `none` only queries the methods.
        auth_rejection_time_initial: Some(Duration::ZERO),
        // The server itself closes a connection after `LOGINS` refused logins. This limit also counts requests that
        // reach no callback, such as those with a wrong signature, and `none`, the first of which is free in sshd.
        max_auth_attempts: limits::LOGINS + 1,
        keys: vec![host_key.key.clone()],
        limits: Limits {
            rekey_write_limit: REKEY,
            rekey_read_limit: REKEY,
            rekey_time_limit: Duration::from_secs(3600),
        },
        window_size: limits::WINDOW,
        // The longest payload of CHANNEL_DATA that clients may send. russh's `run_on_socket` logs an error for more.
        maximum_packet_size: 65_535,
        channel_buffer_size: INCOMING,
        event_buffer_size: OUTGOING,
        preferred: Preferred {
            kex: Cow::Borrowed(KEX),
            key: Cow::Borrowed(KEYS),
            host_key_certificates: Cow::Borrowed(&[]),
            cipher: Cow::Borrowed(CIPHERS),
            mac: Cow::Borrowed(MACS),
            compression: Cow::Borrowed(COMPRESSION),
        },
        inactivity_timeout: None,
        keepalive_interval: Some(SILENCE),
        keepalive_max: KEEPALIVES,
        nodelay: true,
        ..Config::default()
    }
}
