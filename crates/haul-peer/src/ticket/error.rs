//! Why a text is not a ticket.

use super::AddressError;

/// Why a text is not a ticket. No message repeats more of the text than one character: a damaged ticket still
/// contains most of the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// It does not begin like a ticket, or is empty.
    #[error("it is not a ticket: every ticket begins with 'haul1'")]
    NotATicket,
    /// It has a character that no ticket has.
    #[error(
        "it has the character {found:?} at position {position}; tickets have only a to z and 2 to 7"
    )]
    Character {
        /// The first such character.
        found: char,
        /// Its position; that of the first character is 1.
        position: usize,
    },
    /// Its end is missing.
    #[error("it is incomplete: its end is missing, or a character before it")]
    CutOff,
    /// Its checksum does not match.
    #[error("it is mistyped or damaged: its checksum does not match")]
    Mistyped,
    /// It is longer than any ticket.
    #[error("it is too long: a ticket has at most {} characters", super::limits::MAX_TEXT)]
    TooLong,
    /// It has more addresses than any ticket.
    #[error("it has more than {} addresses", super::limits::MAX_ADDRESSES)]
    TooManyAddresses,
    /// It needs a later version of haul.
    #[error("it was made by a later version of haul")]
    LaterVersion,
    /// One of its addresses cannot be dialled.
    #[error("it has an invalid address: {0}")]
    Address(#[from] AddressError),
    /// Its checksum matches, but its content is wrong.
    #[error("it is malformed: {0}")]
    Malformed(&'static str),
}
