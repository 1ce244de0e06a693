//! `cargo +nightly fuzz run --features libfuzzer challenge`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::challenge(data));
