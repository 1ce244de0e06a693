//! `cargo +nightly fuzz run --features libfuzzer disposition`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::disposition(data));
