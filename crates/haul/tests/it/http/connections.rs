//! Servers of all ages and habits, and what is no server of HTTP at all.

use super::answer::{Answer, End, File, Framing};
use super::server::{Asked, Server};
use super::{arrives, fails};
use crate::content::content;

const SIZE: usize = 4 << 20;
const OPTIONS: &str = "--lanes 2 --chunk 128K";

/// The file arrives from a server with a habit.
#[track_caller]
fn whatever(habit: impl Fn(&Asked, Answer) -> Answer + Send + Sync + 'static) -> Server {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let server = Server::start(move |asked| habit(asked, file.answer(asked)));
    arrives(&server, OPTIONS, &bytes);
    server
}

#[test]
fn a_server_that_ends_the_connection_after_each_answer_makes_no_difference() {
    // It says so, or does not; what was asked behind is lost in an orderly way, or by a reset.
    whatever(|_, answer| answer.with("Connection", "close").then(End::Closes));
    whatever(|_, answer| answer.then(End::Closes));
    whatever(|_, answer| answer.with("Connection", "close").then(End::Drops));
}

#[test]
fn a_server_that_ends_the_connection_after_three_answers_makes_no_difference() {
    for end in [End::Closes, End::Drops] {
        let server = whatever(move |asked, answer| match asked.nth {
            3 => answer.then(end),
            _ => answer,
        });
        assert!(server.accepted() > 3);
    }
}

#[test]
fn a_server_that_ends_idle_connections_makes_no_difference() {
    let file = File::new(content(1, 20_000));
    let bytes = file.content.clone();
    // The answer is there, and the connection ends a moment after it.
    let server = Server::start(move |asked| file.answer(asked).then(End::Closes));
    for _ in 0..20 {
        arrives(&server, "", &bytes);
    }
}

#[test]
fn a_server_of_http_1_0_makes_no_difference() {
    whatever(|_, mut answer| {
        answer.version = "HTTP/1.0";
        answer.then(End::Closes)
    });
    whatever(|_, mut answer| {
        answer.version = "HTTP/1.0";
        answer.framed(Framing::End)
    });
    // Without ranges, as most of them were.
    for framing in [Framing::Length, Framing::End] {
        let file = File { ranged: false, ..File::new(content(1, SIZE)) };
        let bytes = file.content.clone();
        let server = Server::start(move |asked| {
            let mut answer = file.answer(asked).without("Accept-Ranges");
            answer.version = "HTTP/1.0";
            answer.framed(framing).then(End::Closes)
        });
        arrives(&server, OPTIONS, &bytes);
    }
}

#[test]
fn parts_in_chunks_make_no_difference() {
    let server = whatever(|_, answer| answer.framed(Framing::Chunked));
    assert!(server.accepted() < 20, "{} connections", server.accepted());
}

#[test]
fn parts_that_end_with_the_connection_make_no_difference() {
    whatever(|_, answer| answer.framed(Framing::End));
}

#[test]
fn a_whole_file_whose_length_is_not_reported_arrives() {
    for framing in [Framing::Chunked, Framing::End] {
        let file = File { ranged: false, ..File::new(content(1, SIZE)) };
        let bytes = file.content.clone();
        let server = Server::start(move |asked| file.answer(asked).framed(framing));
        arrives(&server, OPTIONS, &bytes);
    }
}

#[test]
fn a_body_in_chunks_that_ends_too_early_is_no_whole_file() {
    let file = File { ranged: false, ..File::new(content(1, SIZE)) };
    let server = Server::start(move |asked| {
        file.answer(asked).framed(Framing::Chunked).cut(1_000_000, End::Closes)
    });
    fails(&server, "--retries 1", "/f: cannot ");
}

#[test]
fn interim_answers_are_passed_over() {
    whatever(|_, mut answer| {
        answer.before =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>; \
                         rel=preload\r\n\r\n"
                .to_owned();
        answer
    });
}

#[test]
fn a_head_without_end_is_an_error() {
    for first in [1, 3] {
        for fields in [1, 2000] {
            let file = File::new(content(1, SIZE));
            let server = Server::start(move |asked| {
                let mut answer = file.answer(asked);
                if asked.number >= first {
                    let value = "x".repeat((1 << 20) / fields);
                    let more = (0..fields).map(|n| (format!("X-{n}"), value.clone()));
                    answer.fields.extend(more);
                }
                answer
            });
            fails(&server, "--retries 1 --chunk 128K", "/f: cannot ");
        }
    }
}

#[test]
fn interim_answers_without_end_are_an_error() {
    for first in [1, 3] {
        let file = File::new(content(1, SIZE));
        let server = Server::start(move |asked| match asked.number >= first {
            true => Answer::raw("HTTP/1.1 102 Processing\r\n\r\n".repeat(100_000)),
            false => file.answer(asked),
        });
        fails(&server, "--retries 1 --chunk 128K", "/f: cannot ");
    }
}

#[test]
fn what_is_no_http_is_an_error() {
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"220 ftp.example.org ready\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\0\0\0\0",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 206 Partial Content\r\nno colon in this line\r\n\r\n",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: -5\r\n\r\nabcde",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/9.9 206 Partial Content\r\nContent-Length: 5\r\n\r\nabcde",
        b"<html>hello</html>\n",
        b"",
    ] {
        for first in [1, 3] {
            let file = File::new(content(1, SIZE));
            let server = Server::start(move |asked| match asked.number >= first {
                true => Answer::raw(garbage),
                false => file.answer(asked),
            });
            fails(&server, "--retries 1 --chunk 128K", "/f: cannot ");
        }
    }
}

#[test]
fn something_behind_an_answer_that_nobody_asked_for_is_never_written() {
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |asked| {
        let mut answer = file.answer(asked);
        let length = answer.body.len().to_string();
        if asked.method == "GET" {
            // Longer than it says: the rest is taken for the head of the next answer.
            answer.body.extend_from_slice(b"HTTP/1.1 206 More\r\nContent-Length: 3\r\n\r\nbad");
        }
        answer.with("Content-Length", length)
    });
    let session = crate::session::Session::new();
    super::copy(&session, "--lanes 2 --chunk 128K --retries 1", &server.url("/f"));
    if session.has("dst/f") {
        super::whole(&session, &content(1, SIZE));
    }
}

#[test]
fn nobody_who_listens_is_said() {
    let server = Server::start(|_| Answer::new(200, ""));
    let url = server.url("/f");
    drop(server);
    // The thread that accepts has to end first.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let session = crate::session::Session::new();
    let ran = super::copy(&session, "--retries 0", &url).status(1);
    assert!(ran.err().contains("refused"), "{}", ran.err());
    assert!(!session.has("dst/f"));
}
