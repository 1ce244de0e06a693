//! `cargo +nightly fuzz run --features libfuzzer index`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::index(data));
