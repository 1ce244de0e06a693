//! `cargo +nightly fuzz run --features libfuzzer location`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::location(data));
