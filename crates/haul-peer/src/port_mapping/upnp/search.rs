//! Finds the description of the router by SSDP (UPnP Device Architecture 1.1, section 1.3), unicast to the router
//! instead of multicast to the whole network.

use std::net::{IpAddr, Ipv4Addr};

use haul_storage::{Result, io_cause};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::url::RouterUrl;
use crate::port_mapping::gateway::Route;
use crate::port_mapping::refusal::refused;

/// The port of SSDP.
const PORT: u16 = 1900;

/// The device types to search for. A router of version 2 responds to both.
const TARGETS: [&str; 2] = [
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    "urn:schemas-upnp-org:device:InternetGatewayDevice:2",
];

/// How many times the search is sent.
const ATTEMPTS: u32 = 2;

/// Longest response in bytes; more is cut off.
const MOST: usize = 1500;

/// The URL of the router's description.
///
/// # Errors
/// If the socket fails, or no response of the router has a URL at the router.
pub(super) async fn search(route: Route) -> Result<RouterUrl> {
    let failed = |error| refused(io_cause(&error));
    let socket = UdpSocket::bind((route.own, 0)).await.map_err(failed)?;
    let mut packet = [0; MOST];
    for _ in 0..ATTEMPTS {
        for target in TARGETS {
            let request = request(route.gateway, target);
            let to = (route.gateway, PORT);
            socket.send_to(request.as_bytes(), to).await.map_err(failed)?;
        }
        let until = Instant::now() + route.search;
        while let Ok(received) = timeout_at(until, socket.recv_from(&mut packet)).await {
            let (length, from) = received.map_err(failed)?;
            // Other machines can send to this port, too.
            if from.ip() == IpAddr::V4(route.gateway)
                && let Some(url) = location(&packet[..length], route.gateway)
            {
                return Ok(url);
            }
        }
    }
    Err(refused("no response"))
}

fn request(router: Ipv4Addr, target: &str) -> String {
    format!(
        "M-SEARCH * HTTP/1.1\r\nHOST: {router}:{PORT}\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\nST: {target}\r\n\r\n"
    )
}

/// The URL in a response, if it is at the router.
pub(super) fn location(packet: &[u8], router: Ipv4Addr) -> Option<RouterUrl> {
    let text = std::str::from_utf8(packet).ok()?;
    let mut lines = text.lines();
    if !lines.next()?.starts_with("HTTP/1.1 200") {
        return None;
    }
    lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_location = name.trim().eq_ignore_ascii_case("location");
        is_location.then(|| RouterUrl::parse(value.trim(), router)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_description_at_the_router_is_used() {
        let router = Ipv4Addr::new(10, 0, 2, 1);
        let of = |text: &str| location(text.as_bytes(), router).map(|url| url.path().to_owned());
        let found = "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=120\r\nLocation: http://10.0.2.1:5000/a.xml\r\n\r\n";
        assert_eq!(of(found).as_deref(), Some("/a.xml"));
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\nLOCATION: http://10.0.2.1/a.xml\r\n\r\n",
            "NOTIFY * HTTP/1.1\r\nLOCATION: http://10.0.2.1/a.xml\r\n\r\n",
            "HTTP/1.1 200 OK\r\nLOCATION: http://10.0.2.9/a.xml\r\n\r\n",
            "HTTP/1.1 200 OK\r\nLOCATION: http://example.org/a.xml\r\n\r\n",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(
            location(b"HTTP/1.1 200 OK\r\nLOCATION: http://10.0.2.1/\xff\r\n", router),
            None
        );
    }
}
