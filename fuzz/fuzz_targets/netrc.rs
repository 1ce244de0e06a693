//! `cargo +nightly fuzz run --features libfuzzer netrc`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::netrc(data));
