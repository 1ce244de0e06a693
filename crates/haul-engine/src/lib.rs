//! The transfer engine of haul.
//!
//! ```text
//! jobs → plan → schedule → (read_at → digest → write_at) → commit → events
//!                  ↑                     │
//!                  └── window: measurements
//! ```
//!
//! [`transfer()`] takes [`Job`]s between opened storages and [`Settings`], reports what happens as
//! [`Event`]s and returns a [`Summary`]. It knows no backend: everything goes through the traits of
//! `haul-storage`.

pub mod budget;
mod collision;
mod context;
mod current;
pub mod digest;
mod ends;
mod event;
pub mod fan;
mod flow;
mod in_flight;
mod job;
mod limiter;
mod links;
mod long;
pub mod manifest;
mod marker;
pub mod mirror;
mod modes;
mod order;
mod overlap;
mod plan;
mod retry;
mod room;
mod roots;
mod schedule;
mod selection;
mod settings;
mod sources;
mod stored_times;
mod tally;
mod transfer;
pub mod tree;
pub mod verify;
pub mod window;

pub use event::{
    Action, CurrentFile, Event, EventSink, FileEvent, LinkSummary, Phase, Progress, Reason, Summary,
};
pub use job::{Cancel, Job};
pub use modes::ModeChanges;
pub use order::{Order, OrderBy};
pub use plan::fold as fold_name;
pub use room::Ledger;
pub use selection::Selection;
pub use settings::{
    Auto, Backup, ChangeOwner, Compare, DeleteLimit, Filter, Overwrite, Owners, Preserve, Settings,
    WindowProfile,
};
pub use transfer::{transfer, transfer_sharing};
