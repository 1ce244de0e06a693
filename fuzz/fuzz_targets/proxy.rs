//! `cargo +nightly fuzz run --features libfuzzer proxy`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::proxy(data));
