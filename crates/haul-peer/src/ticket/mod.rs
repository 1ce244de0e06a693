//! Tickets: all that a peer needs to reach a share, as one word.
//!
//! A ticket is `haul1`, followed by base32 (RFC 4648, lower case, no padding) of these bytes. Upper case is accepted
//! as well, for QR codes. Integers are big-endian.
//!
//! ```text
//! u8 version (1) | fields | u8 0, the end of the fields | 4 bytes checksum
//! field:    u8 type | u8 length | value
//! checksum: the first bytes of BLAKE3 in mode derive_key, context CHECKSUM_CONTEXT, of all bytes before it
//! ```
//!
//! | type | value | |
//! |---|---|---|
//! | 0x81 | Ed25519 public key, 32 bytes | required |
//! | 0x82 | secret, 16 bytes | required |
//! | 0x03 | IPv4 addresses of the sharer: 4 bytes, u16 port, repeated | any number of fields |
//! | 0x04 | IPv6 addresses of the sharer: 16 bytes, u16 port, repeated | any number of fields |
//! | 0x05 | bridge: u16 port, then the host name or address as text | at most once |
//! | 0x86 | the bridge's key, 32 bytes | at most once, with a bridge |
//! | 0x07 | u64 expiry in seconds since 1970 | at most once |
//! | 0x08 | u8 flags: 1 one use, 2 writable; other bits are ignored | at most once |
//!
//! The order of the addresses is that of the sharer's preference, so fields of 0x03 and 0x04 may alternate. Otherwise,
//! haul writes the fields in the order of this table; it accepts any order. A later version may add types: one without
//! the bit 0x80 (critical) is ignored by this version, and a ticket with an unknown critical one is refused as
//! [`TicketError::LaterVersion`]. Version, fields, their end and the checksum have this form in every version of a text
//! that begins with `haul1`, so that a damaged ticket is never mistaken for a later one.
//!
//! The parser takes untrusted text: it is bounded by [`MAX_TEXT`] and [`MAX_ADDRESSES`], and all that it returns has
//! been checked. The holder of a ticket can use it, so only [`Ticket`]'s `Display` and [`Ticket::to_upper`] print it.

mod address;
pub(crate) mod base32;
mod error;
mod key;
mod limits;
mod secret;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use zeroize::Zeroizing;

pub(crate) use address::is_private;
pub use address::{Address, AddressError, BridgeAddress};
pub use error::TicketError;
pub use key::{PeerKey, PeerKeyError};
pub use limits::{MAX_ADDRESSES, MAX_TEXT};
pub use secret::Secret;

const PREFIX: &str = "haul1";
const VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 4;
/// It must never change.
const CHECKSUM_CONTEXT: &str = "haul 2025-11 ticket checksum v1";

/// The bit of a field's type that forbids ignoring the field.
const CRITICAL: u8 = 0x80;
const END: u8 = 0;
const KEY: u8 = CRITICAL | 1;
const SECRET: u8 = CRITICAL | 2;
const IPV4: u8 = 3;
const IPV6: u8 = 4;
const BRIDGE: u8 = 5;
const BRIDGE_KEY: u8 = CRITICAL | 6;
const EXPIRES: u8 = 7;
const FLAGS: u8 = 8;

const ONE_USE: u8 = 1;
const WRITABLE: u8 = 2;

/// Sizes of an address with its port in bytes.
const IPV4_LEN: usize = 6;
const IPV6_LEN: usize = 18;

/// All that a peer needs to reach a share. `Display` writes the text, secret included; `Debug` hides the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The sharer's public key.
    pub key: PeerKey,
    /// Admits to the share.
    pub secret: Secret,
    addresses: Vec<Address>,
    /// The bridge at which the sharer waits.
    pub bridge: Option<BridgeAddress>,
    /// When the sharer will refuse the ticket, in seconds since 1970 by its clock. For display; a client does not use a
    /// stored ticket after it.
    pub expires: Option<u64>,
    /// Whether the sharer admits one session only. For display only.
    pub is_one_use: bool,
    /// Whether the share can be written to. For display only.
    pub is_writable: bool,
}

impl Ticket {
    /// A ticket without addresses, bridge, expiry and flags.
    pub const fn new(key: PeerKey, secret: Secret) -> Self {
        Self {
            key,
            secret,
            addresses: Vec::new(),
            bridge: None,
            expires: None,
            is_one_use: false,
            is_writable: false,
        }
    }

    /// Adds addresses of the sharer, the preferred ones first. Those that the ticket already has are skipped, as are
    /// those above [`MAX_ADDRESSES`].
    #[must_use]
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = Address>) -> Self {
        for address in addresses {
            if self.addresses.len() < MAX_ADDRESSES && !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
        self
    }

    /// The sharer's addresses, the preferred ones first.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The text in upper case, which QR codes store as alphanumeric characters (5.5 bits each).
    pub fn to_upper(&self) -> Zeroizing<String> {
        let mut text = self.to_text();
        text.make_ascii_uppercase();
        text
    }

    fn to_text(&self) -> Zeroizing<String> {
        let code = base32::encode(&self.to_bytes());
        // Long enough from the start: a string that grows leaves copies of the secret behind.
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + code.len()));
        text.push_str(PREFIX);
        text.push_str(&code);
        text
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::<u8>::with_capacity(MAX_TEXT));
        bytes.push(VERSION);
        push_field(&mut bytes, KEY, self.key.as_bytes());
        push_field(&mut bytes, SECRET, self.secret.expose());
        for run in self.addresses.chunk_by(|a, b| a.socket().is_ipv4() == b.socket().is_ipv4()) {
            let (kind, len) = match run[0].socket().is_ipv4() {
                true => (IPV4, IPV4_LEN),
                false => (IPV6, IPV6_LEN),
            };
            for chunk in run.chunks(usize::from(u8::MAX) / len) {
                let value: Vec<u8> = chunk.iter().flat_map(|address| address.to_bytes()).collect();
                push_field(&mut bytes, kind, &value);
            }
        }
        if let Some(bridge) = &self.bridge {
            let mut value = bridge.port().to_be_bytes().to_vec();
            value.extend(bridge.host().as_bytes());
            push_field(&mut bytes, BRIDGE, &value);
            if let Some(key) = &bridge.key {
                push_field(&mut bytes, BRIDGE_KEY, key);
            }
        }
        if let Some(expires) = self.expires {
            push_field(&mut bytes, EXPIRES, &expires.to_be_bytes());
        }
        let one_use = if self.is_one_use { ONE_USE } else { 0 };
        let writable = if self.is_writable { WRITABLE } else { 0 };
        if one_use | writable != 0 {
            push_field(&mut bytes, FLAGS, &[one_use | writable]);
        }
        bytes.push(END);
        let sum = checksum(&bytes);
        bytes.extend(sum);
        bytes
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// White space around the ticket is ignored.
impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let code = code_of(text)?;
        if text.len() > MAX_TEXT {
            return Err(TicketError::TooLong);
        }
        let decoded = base32::decode(code).map_err(|foreign| TicketError::Character {
            found: foreign.found,
            position: PREFIX.len() + foreign.index + 1,
        })?;
        let bytes = decoded.bytes.as_slice();
        let (fields, rest) = split_fields(bytes).ok_or(TicketError::CutOff)?;
        if rest.len() < CHECKSUM_LEN {
            return Err(TicketError::CutOff);
        }
        if rest != checksum(&bytes[..bytes.len() - rest.len()]) || !decoded.is_exact {
            return Err(TicketError::Mistyped);
        }
        match bytes[0] {
            VERSION => from_fields(&fields),
            0 => Err(TicketError::Malformed("version 0 does not exist")),
            _ => Err(TicketError::LaterVersion),
        }
    }
}

/// A ticket and a path within its share, as given on the command line: `haul1…[/path]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketLocation {
    /// The ticket.
    pub ticket: Ticket,
    /// The path as written, without the slash that separates it from the ticket; empty for the share itself.
    pub path: String,
}

impl FromStr for TicketLocation {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let (ticket, path) = split(text);
        Ok(Self { ticket: ticket.parse()?, path: path.to_owned() })
    }
}

/// Splits `haul1…[/path]` at its first slash, which belongs to neither part.
pub fn split(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((text, ""))
}

/// Parses the content of a file, standard input or an environment variable: the ticket is the first line that is not
/// blank.
///
/// # Errors
/// If that line is not a ticket, or all lines are blank.
pub fn parse_given(text: &str) -> Result<Ticket, TicketError> {
    // Editors of some systems begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.ok_or(TicketError::NotATicket)?.parse()
}

/// The part of a ticket that is in base32.
fn code_of(text: &str) -> Result<&str, TicketError> {
    let Some((head, _)) = text.as_bytes().split_first_chunk::<{ PREFIX.len() }>() else {
        return Err(TicketError::NotATicket);
    };
    if head.eq_ignore_ascii_case(PREFIX.as_bytes()) {
        // The first five bytes are ASCII.
        return Ok(&text[PREFIX.len()..]);
    }
    // `haul2` to `haul9` are reserved for later versions.
    let is_later = head.to_ascii_lowercase().starts_with(b"haul") && matches!(head[4], b'2'..=b'9');
    Err(if is_later { TicketError::LaterVersion } else { TicketError::NotATicket })
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let [a, b, c, d, ..] = blake3::derive_key(CHECKSUM_CONTEXT, bytes);
    [a, b, c, d]
}

/// Appends a field; `value` has at most 255 bytes. That is ensured by the types: a bridge's host has at most 253.
fn push_field(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    debug_assert!(value.len() <= usize::from(u8::MAX));
    bytes.extend([kind, value.len() as u8]);
    bytes.extend(value);
}

type Field<'a> = (u8, &'a [u8]);

/// The fields behind the version, and all bytes behind their end; `None` if they have no end.
fn split_fields(bytes: &[u8]) -> Option<(Vec<Field<'_>>, &[u8])> {
    let mut fields = Vec::new();
    let mut rest = bytes.get(1..)?;
    loop {
        let (&kind, after) = rest.split_first()?;
        if kind == END {
            return Some((fields, after));
        }
        let (&length, after) = after.split_first()?;
        let (value, after) = after.split_at_checked(length.into())?;
        fields.push((kind, value));
        rest = after;
    }
}

fn from_fields(fields: &[Field<'_>]) -> Result<Ticket, TicketError> {
    // Checked first, so that a later version may also change the fields that this one knows.
    let is_later = |kind: u8| kind & CRITICAL != 0 && !matches!(kind, KEY | SECRET | BRIDGE_KEY);
    if fields.iter().any(|(kind, _)| is_later(*kind)) {
        return Err(TicketError::LaterVersion);
    }
    let (mut key, mut secret, mut addresses) = (None, None, Vec::new());
    let (mut bridge, mut bridge_key, mut expires, mut flags) = (None, None, None, None);
    for &(kind, value) in fields {
        match kind {
            KEY => set(&mut key, array(value)?)?,
            SECRET => set(&mut secret, Secret::new(array(value)?))?,
            IPV4 => push_addresses::<4, IPV4_LEN>(&mut addresses, value)?,
            IPV6 => push_addresses::<16, IPV6_LEN>(&mut addresses, value)?,
            BRIDGE => set(&mut bridge, bridge_from(value)?)?,
            BRIDGE_KEY => set(&mut bridge_key, array(value)?)?,
            EXPIRES => set(&mut expires, u64::from_be_bytes(array(value)?))?,
            FLAGS => set(&mut flags, u8::from_be_bytes(array(value)?))?,
            // Of a later version, but not critical.
            _ => {}
        }
    }
    let key = key.ok_or(TicketError::Malformed("it has no key"))?;
    let key = PeerKey::checked(key).ok_or(TicketError::Malformed("its key is weak"))?;
    let secret = secret.ok_or(TicketError::Malformed("it has no secret"))?;
    if bridge_key.is_some() && bridge.is_none() {
        return Err(TicketError::Malformed("it has a bridge's key, but no bridge"));
    }
    let flags = flags.unwrap_or(0);
    let mut ticket = Ticket::new(key, secret).with_addresses(addresses);
    ticket.bridge = bridge.map(|bridge| bridge.with_key(bridge_key));
    ticket.expires = expires;
    ticket.is_one_use = flags & ONE_USE != 0;
    ticket.is_writable = flags & WRITABLE != 0;
    Ok(ticket)
}

/// Sets a field that must not be repeated.
fn set<T>(slot: &mut Option<T>, value: T) -> Result<(), TicketError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(TicketError::Malformed("a field is repeated")),
    }
}

fn array<const N: usize>(value: &[u8]) -> Result<[u8; N], TicketError> {
    value.try_into().map_err(|_| TicketError::Malformed("a field has the wrong length"))
}

/// Appends addresses of `IP` bytes, which are `LEN` bytes with their port.
fn push_addresses<const IP: usize, const LEN: usize>(
    addresses: &mut Vec<Address>,
    value: &[u8],
) -> Result<(), TicketError>
where
    std::net::IpAddr: From<[u8; IP]>,
{
    let (chunks, []) = value.as_chunks::<LEN>() else {
        return Err(TicketError::Malformed("a field has the wrong length"));
    };
    for chunk in chunks {
        if addresses.len() == MAX_ADDRESSES {
            return Err(TicketError::TooManyAddresses);
        }
        let (ip, port) = chunk.split_at(IP);
        let ip: [u8; IP] = array(ip)?;
        let port = u16::from_be_bytes(array(port)?);
        addresses.push(Address::new(SocketAddr::new(ip.into(), port))?);
    }
    Ok(())
}

fn bridge_from(value: &[u8]) -> Result<BridgeAddress, TicketError> {
    const MALFORMED: TicketError = TicketError::Malformed("its bridge is not text");
    let (port, host) = value.split_first_chunk().ok_or(MALFORMED)?;
    let host = std::str::from_utf8(host).map_err(|_| MALFORMED)?;
    Ok(BridgeAddress::new(host, u16::from_be_bytes(*port))?)
}

#[cfg(test)]
mod tests;
