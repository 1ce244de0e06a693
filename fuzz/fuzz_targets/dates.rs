//! `cargo +nightly fuzz run --features libfuzzer dates`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::dates(data));
