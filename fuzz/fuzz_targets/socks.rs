//! `cargo +nightly fuzz run --features libfuzzer socks`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::socks(data));
