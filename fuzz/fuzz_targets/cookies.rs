//! `cargo +nightly fuzz run --features libfuzzer cookies`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::cookies(data));
