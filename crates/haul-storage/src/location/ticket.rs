//! The text of a peer's ticket.

use std::fmt;
use std::hash::{Hash, Hasher};

/// The text of a ticket, in lower case, or of a spoken code, which stands for one. It grants access, so `Debug` shows
/// only its beginning.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketText(String);

impl TicketText {
    /// Takes over a text, which may be damaged.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, secret included.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True if both grant access to the same share: they have the same key and secret. The addresses of the sharer may
    /// differ. Several shares of one sharer have the same key.
    pub fn is_of_share(&self, other: &Self) -> bool {
        self.share() == other.share()
    }

    /// What identifies the share: key and secret, or all of a shorter text. It grants access, as the ticket does.
    pub fn share(&self) -> &str {
        /// `haul1`, and the 84 whole base32 characters of version, key and secret (53 bytes), which haul writes
        /// first.
        const ADMITTING: usize = 5 + 84;
        self.0.get(..ADMITTING).unwrap_or(&self.0)
    }
}

/// Hashes only what identifies the share: its addresses may change.
impl Hash for TicketText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.share().hash(state);
    }
}

impl fmt::Debug for TicketText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", shown_of_ticket(&self.0))
    }
}

/// The first 18 characters of a ticket. Those after the tenth belong to the sharer's public key, by which the ticket
/// is recognized; the secret begins after the first 64. A text shorter than a whole ticket may be any part of one, so
/// only its first 9 characters are returned.
///
/// For a spoken code, such as `7-orbit-candle`, only the number and its dash: the words are the secret.
pub(super) fn shown_of_ticket(ticket: &str) -> &str {
    let digits = ticket.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && ticket[digits..].starts_with('-') {
        return &ticket[..=digits];
    }
    let length = ticket.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let shown = if length >= WHOLE_TICKET { 18 } else { 9 };
    ticket.char_indices().nth(shown).map_or(ticket, |(end, _)| &ticket[..end])
}

/// Text of this length counts as a whole ticket. The shortest one has 98 characters: `haul1`, and 93 for 58 bytes (a
/// key of 32, a secret of 16, a checksum of 4, and 6 for version and fields).
pub(super) const WHOLE_TICKET: usize = 90;
