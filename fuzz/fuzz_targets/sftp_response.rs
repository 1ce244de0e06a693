//! `cargo +nightly fuzz run --features libfuzzer sftp_response`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::sftp_response(data));
