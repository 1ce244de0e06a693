//! Real mounts, used by everyday programs and by programs that test file systems.
//!
//! The tests need root and `/dev/fuse`; a test that cannot run prints why it is skipped. Most have a short form, and a
//! long one for the night (`HAUL_TEST_NIGHT=1`, `scripts/night`). By day, two run at a time (one alone if it measures
//! time), and their files are in memory; at night, one at a time, on the disk.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "figures of a test, and why it is skipped")]

#[path = "../it/content.rs"]
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod content;
mod lab;
mod mounted;
#[path = "../it/session.rs"]
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod session;
mod source;
#[path = "../../../haul-sftp/tests/support/sshd.rs"]
#[expect(dead_code, reason = "the tests of SSH use the rest")]
mod sshd;

mod busy;
mod cache;
mod conflicts;
mod crash;
mod exercisers;
mod expected;
mod faults;
mod model;
mod pjdfstest;
mod posixtest;
mod programs;
mod reading;
mod renaming;
mod suspend;
