//! `cargo +nightly fuzz run --features libfuzzer upnp`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::upnp(data));
