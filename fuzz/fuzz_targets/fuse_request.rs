//! `cargo +nightly fuzz run --features libfuzzer fuse_request`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::fuse_request(data));
