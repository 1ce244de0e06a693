//! Limits of tickets.

/// Longest text of a ticket in characters. The longest that haul writes has about 1500.
pub const MAX_TEXT: usize = 2048;

/// Most addresses in a ticket.
pub const MAX_ADDRESSES: usize = 32;
