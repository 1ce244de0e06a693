//! `cargo +nightly fuzz run --features libfuzzer ssh_certificate`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ssh_certificate(data));
