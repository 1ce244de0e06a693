//! Tests of the WebDAV server, run in this process: with common clients, and with hand-written requests.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

mod clients;
mod files;
mod gate;
mod jail;
mod methods;
mod page;
mod site;
mod tls;
mod uploads;
