//! `cargo +nightly fuzz run --features libfuzzer ftp_reply`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ftp_reply(data));
