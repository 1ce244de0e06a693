//! Runs every input of the committed corpus through the function of its fuzz target, with a stable compiler.

#![expect(clippy::unwrap_used, reason = "a corpus that cannot be read has failed")]

use std::path::Path;

fn run(target: &str, decode: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        decode(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "no corpus in {}", corpus.display());
}

#[test]
fn the_journal_decoder_takes_its_corpus() {
    run("journal", haul_fuzz::journal);
}

#[test]
fn the_manifest_decoder_takes_its_corpus() {
    run("manifest", haul_fuzz::manifest);
}

#[test]
fn the_location_parser_takes_its_corpus() {
    run("location", haul_fuzz::location);
}

#[test]
fn the_sftp_request_decoder_takes_its_corpus() {
    run("sftp_request", haul_fuzz::sftp_request);
}

#[test]
fn the_sftp_response_decoder_takes_its_corpus() {
    run("sftp_response", haul_fuzz::sftp_response);
}

#[test]
fn the_webdav_listing_parser_takes_its_corpus() {
    run("multistatus", haul_fuzz::multistatus);
}

#[test]
fn the_html_index_parser_takes_its_corpus() {
    run("index", haul_fuzz::index);
}

#[test]
fn the_link_parser_takes_its_corpus() {
    run("href", haul_fuzz::href);
}

#[test]
fn the_fuse_request_decoder_takes_its_corpus() {
    run("fuse_request", haul_fuzz::fuse_request);
}

#[test]
fn the_challenge_parser_takes_its_corpus() {
    run("challenge", haul_fuzz::challenge);
}

#[test]
fn the_cookie_parser_takes_its_corpus() {
    run("cookies", haul_fuzz::cookies);
}

#[test]
fn the_netrc_parser_takes_its_corpus() {
    run("netrc", haul_fuzz::netrc);
}

#[test]
fn the_ftp_reply_parser_takes_its_corpus() {
    run("ftp_reply", haul_fuzz::ftp_reply);
}

#[test]
fn the_ftp_listing_parser_takes_its_corpus() {
    run("ftp_listing", haul_fuzz::ftp_listing);
}

#[test]
fn the_ssh_identification_parser_takes_its_corpus() {
    run("ssh_identification", haul_fuzz::ssh_identification);
}

#[test]
fn the_ssh_offer_parser_takes_its_corpus() {
    run("ssh_offer", haul_fuzz::ssh_offer);
}

#[test]
fn the_ssh_packet_opener_takes_its_corpus() {
    run("ssh_packets", haul_fuzz::ssh_packets);
}

#[test]
fn the_ssh_authentication_parser_takes_its_corpus() {
    run("ssh_authentication", haul_fuzz::ssh_authentication);
}

#[test]
fn the_ssh_certificate_parser_takes_its_corpus() {
    run("ssh_certificate", haul_fuzz::ssh_certificate);
}

#[test]
fn the_known_hosts_parser_takes_its_corpus() {
    run("ssh_known_hosts", haul_fuzz::ssh_known_hosts);
}

#[test]
fn the_ssh_config_parser_takes_its_corpus() {
    run("ssh_config", haul_fuzz::ssh_config);
}

#[test]
fn the_http_response_reader_takes_its_corpus() {
    run("http_response", haul_fuzz::http_response);
}

#[test]
fn the_http_tunnel_takes_its_corpus() {
    run("http_tunnel", haul_fuzz::http_tunnel);
}

#[test]
fn the_socks_client_takes_its_corpus() {
    run("socks", haul_fuzz::socks);
}

#[test]
fn the_webdav_request_parser_takes_its_corpus() {
    run("dav_request", haul_fuzz::dav_request);
}

#[test]
fn the_range_parser_takes_its_corpus() {
    run("ranges", haul_fuzz::ranges);
}

#[test]
fn the_date_parser_takes_its_corpus() {
    run("dates", haul_fuzz::dates);
}

#[test]
fn the_header_field_parsers_take_their_corpus() {
    run("fields", haul_fuzz::fields);
}

#[test]
fn the_file_name_parser_takes_its_corpus() {
    run("disposition", haul_fuzz::disposition);
}

#[test]
fn the_proxy_parser_takes_its_corpus() {
    run("proxy", haul_fuzz::proxy);
}

#[test]
fn the_peer_deframer_takes_its_corpus() {
    run("peer_frames", haul_fuzz::peer_frames);
}

#[test]
fn the_peer_message_decoder_takes_its_corpus() {
    run("peer_messages", haul_fuzz::peer_messages);
}

#[test]
fn the_bridge_message_decoder_takes_its_corpus() {
    run("peer_bridge", haul_fuzz::peer_bridge);
}

#[test]
fn the_ticket_parser_takes_its_corpus() {
    run("peer_ticket", haul_fuzz::peer_ticket);
}

#[test]
fn the_upnp_parsers_take_their_corpus() {
    run("upnp", haul_fuzz::upnp);
}
