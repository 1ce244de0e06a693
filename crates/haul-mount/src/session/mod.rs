//! The connection to the kernel: mounting, threads that read requests, responses from tasks, and unmounting.
//!
//! ```text
//! point (checks) → attach (mount(2) or fusermount3) → Device ── requests ──► threads ──► Handler
//!                                                        ▲                      │ at once, or
//!                                                        └────── responses ─────┴─► a task per request
//! ```
//!
//! One thread at a time reads; it passes the turn on before it handles what it has read. It responds itself to requests
//! that need no waiting. Every other request becomes a task, which INTERRUPT aborts unless it is done soon, or the
//! signal is a harmless one (`signals`): the process gets `EINTR`, whatever the server does. Only the task that removes
//! a request from the table of requests in flight responds to it, so each gets one response.

mod attach;
mod device;
mod helper;
mod in_flight;
mod mounts;
mod point;
mod serve;
mod signals;

pub(crate) use attach::{AttachOptions, Attached, Detached, attach};
pub(crate) use point::checked;
pub(crate) use serve::{End, Handler, Session};
