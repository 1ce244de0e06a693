//! `cargo +nightly fuzz run --features libfuzzer http_tunnel`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::http_tunnel(data));
