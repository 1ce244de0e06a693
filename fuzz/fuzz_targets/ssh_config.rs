//! `cargo +nightly fuzz run --features libfuzzer ssh_config`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ssh_config(data));
