//! The SFTP server: its sessions without SSH, and all of it with widespread clients.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

#[path = "../support/prompter.rs"]
mod prompter;

mod clients;
mod events;
mod jail;
mod login;
mod names;
mod order;
mod pipe;
mod vanished;
mod wire;
