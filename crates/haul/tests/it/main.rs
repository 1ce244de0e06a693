//! The program as its users see it: the tests run the real binary, and read like a session at a
//! terminal.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "figures of a test that are worth seeing")]

mod content;
mod image;
#[path = "../../../haul-net/tests/support/port.rs"]
mod port;
mod pty;
mod session;

mod attributes;
mod between;
mod bridge;
mod codes;
mod collide;
mod complete;
mod config;
mod cp;
mod dav;
mod demo;
mod docs;
mod done;
mod fan;
mod faults;
mod folding;
mod foreign;
mod ftp;
mod help;
mod http;
mod kill;
mod lan;
mod ls;
mod mount;
mod moves;
mod names;
mod nested;
mod packages;
mod peer_paths;
mod private;
mod prompts;
mod rsync;
mod serve;
mod serve_dav;
mod sftp;
mod share;
mod space;
mod stop;
mod sync;
mod terminal;
mod times;
mod usage;
mod verify;
