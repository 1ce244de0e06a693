//! `cargo +nightly fuzz run --features libfuzzer ftp_listing`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ftp_listing(data));
