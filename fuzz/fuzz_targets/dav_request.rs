//! `cargo +nightly fuzz run --features libfuzzer dav_request`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::dav_request(data));
