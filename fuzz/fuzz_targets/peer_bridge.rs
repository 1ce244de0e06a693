//! `cargo +nightly fuzz run --features libfuzzer peer_bridge`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::peer_bridge(data));
