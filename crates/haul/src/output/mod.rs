//! Everything that the program prints.
//!
//! All output goes through one [`Printer`]: results to standard output, everything else to standard
//! error, and nothing into the middle of a progress bar.

mod clients;
mod color;
mod files;
pub(crate) mod human;
pub(crate) mod json;
mod line;
mod long;
mod printer;
mod progress;

pub(crate) use clients::{ClientDisplay, ClientLine};
pub(crate) use files::FileLine;
pub(crate) use long::LongForm;
pub(crate) use printer::{Piece, Printer};
pub(crate) use progress::ProgressDisplay;
