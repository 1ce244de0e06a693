//! Proxies that compress what should stay as it is.

use super::answer::{File, Framing};
use super::fails;
use super::server::Server;
use crate::content::content;

#[test]
fn a_body_that_was_compressed_on_the_way_is_refused() {
    for (size, first, framing) in [
        (1000, 1, Framing::Length),
        (3 << 20, 1, Framing::Length),
        (3 << 20, 1, Framing::Chunked),
        (3 << 20, 3, Framing::Length),
        (3 << 20, 3, Framing::Chunked),
    ] {
        let file = File::new(content(1, size));
        let server = Server::start(move |asked| {
            let answer = file.answer(asked);
            if asked.number < first {
                return answer;
            }
            // Whatever was asked for, as such proxies have it.
            answer.with("Content-Encoding", "gzip").framed(framing)
        });
        fails(
            &server,
            "--retries 1 --chunk 128K",
            "encoded (gzip) although that was not asked for",
        );
        assert!(
            server.asked().iter().all(|asked| asked.field("accept-encoding") == Some("identity"))
        );
    }
}

#[test]
fn an_encoding_that_changes_nothing_is_none() {
    let file = File::new(content(1, 1 << 20));
    let bytes = file.content.clone();
    let server =
        Server::start(move |asked| file.answer(asked).with("Content-Encoding", "identity"));
    super::arrives(&server, "--chunk 128K", &bytes);
}
