//! `cargo +nightly fuzz run --features libfuzzer ssh_identification`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ssh_identification(data));
