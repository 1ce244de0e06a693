//! Entry points of the fuzz targets: each takes any bytes and panics if an invariant is violated.

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::io::{join, sink};

use super::framing::{Event, Framing};
use super::head::Broken;
use super::proxy::tunnel;
use crate::parse::proxy::{OPTION, proxy_for};
use crate::parse::{Origin, Url, WebScheme};

/// A response: the result does not depend on how its bytes are split.
pub fn response(data: &[u8]) {
    let Some((&size, text)) = data.split_first() else { return };
    let Ok(url) = Url::parse("http://h/f") else { return };
    let read = |chunks: &mut dyn Iterator<Item = &[u8]>| {
        let mut framing = Framing::new(url.clone(), size & 1 == 1);
        let (mut input, mut statuses, mut body) = (BytesMut::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            input.extend_from_slice(chunk);
            loop {
                match framing.poll(&mut input) {
                    Ok(None) => break,
                    Ok(Some(Event::Provisional(status))) => statuses.push(status),
                    Ok(Some(Event::Head(head))) => {
                        statuses.push(head.status);
                        let until_close = framing.left().is_none() && head.is_until_close();
                        assert!(head.length().is_none() || !until_close, "two ends of a body");
                    }
                    Ok(Some(Event::Body(bytes))) => {
                        assert!(!bytes.is_empty(), "a part of a body without bytes");
                        body.extend_from_slice(&bytes);
                    }
                    Ok(Some(Event::End)) => return (statuses, body, Ok(framing.keeps_open())),
                    Err(broken) => return (statuses, body, Err(broken)),
                }
            }
        }
        let ended = framing.on_close().map(|()| framing.keeps_open());
        (statuses, body, ended)
    };
    let whole = read(&mut std::iter::once(text));
    let pieces = read(&mut text.chunks(usize::from(size).max(1)));
    // A truncated or overlong response may be detected earlier or later, with another error.
    let is_read = |broken: &Result<bool, Broken>| broken.is_ok();
    assert_eq!(is_read(&whole.2), is_read(&pieces.2), "a response depends on its chunks");
    if whole.2.is_ok() {
        assert_eq!(whole, pieces, "a response depends on its chunks");
    }
}

/// The response of an HTTP proxy to CONNECT: bytes behind it are left for the server's stream.
pub fn tunnel_response(data: &[u8]) {
    let Ok(origin) = Origin::new(WebScheme::Https, "host.example", None) else { return };
    let option = |name: &str| (name == OPTION).then(|| "http://u:p@proxy:3128".to_owned());
    let Ok(Some(proxy)) = proxy_for(&origin, option) else { return };
    let mut stream = join(data, sink());
    let opened = tunnel(&mut stream, &proxy, &origin).now_or_never();
    let (left, _) = stream.into_inner();
    if matches!(opened, Some(Ok(()))) {
        let response = &data[..data.len() - left.len()];
        assert!(response.ends_with(b"\r\n\r\n"), "{response:?}");
    }
}
