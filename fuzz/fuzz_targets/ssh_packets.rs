//! `cargo +nightly fuzz run --features libfuzzer ssh_packets`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::ssh_packets(data));
