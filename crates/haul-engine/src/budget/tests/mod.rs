//! The budget in virtual time: the queue with random requests, paths that several users share, and the
//! asynchronous shell around its state machines.

mod grants;
mod hosts;
mod shared;
mod shell;
