//! `cargo +nightly fuzz run --features libfuzzer sftp_request`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::sftp_request(data));
