//! `cargo +nightly fuzz run --features libfuzzer peer_ticket`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::peer_ticket(data));
