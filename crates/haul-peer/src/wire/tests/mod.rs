//! Tests of the wire format.

mod conversions;
mod deframer;
mod generators;
mod hostile;
mod pieces;
