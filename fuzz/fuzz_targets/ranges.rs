//! `cargo +nightly fuzz run --features libfuzzer ranges`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ranges(data));
