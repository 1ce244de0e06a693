//! `cargo +nightly fuzz run --features libfuzzer journal`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::journal(data));
