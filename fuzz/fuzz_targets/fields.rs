//! `cargo +nightly fuzz run --features libfuzzer fields`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::fields(data));
