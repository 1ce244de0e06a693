//! The budget in virtual time: the queue with random requests, paths that several users share, and the shell.

mod grants;
mod hosts;
mod shared;
mod shell;
