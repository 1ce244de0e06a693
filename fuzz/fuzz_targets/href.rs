//! `cargo +nightly fuzz run --features libfuzzer href`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::href(data));
