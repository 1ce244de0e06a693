//! `cargo +nightly fuzz run --features libfuzzer multistatus`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::multistatus(data));
