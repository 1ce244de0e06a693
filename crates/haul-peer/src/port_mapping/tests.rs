//! Port mapping with routers that map ports, refuse, do not respond, or lie.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::testing::{Router, granted, lifetime, respond};
use super::*;

const PORT: NonZeroU16 = NonZeroU16::new(41_800).unwrap();

/// The router's address on the internet.
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

const KIND: &str = "urn:schemas-upnp-org:service:WANIPConnection:1";

/// Requests a mapping, and waits up to a minute, in case the machine is busy.
fn start(router: &Router) -> PortMapping {
    let mut mapping = start_hurried(router);
    mapping.until += Duration::from_secs(60);
    mapping
}

/// Requests a mapping, and waits only as long as a ticket does.
fn start_hurried(router: &Router) -> PortMapping {
    let route = router.route();
    PortMapping::with_routes(PORT, Box::new(move || Ok(route)), Box::new(|_| {}))
}

/// Why a router maps no port.
async fn refusal(router: &Router) -> String {
    start(router).address().await.unwrap_err().cause()
}

/// A router that has PCP, and grants a mapping with this external address and lease.
fn with_pcp(ip: Ipv4Addr, lease: u32) -> Router {
    let router = Router::new();
    let record = router.recorder();
    router.pcp(Box::new(move |request| {
        record(format!("PCP {} s", lifetime(request)));
        Some(granted(request, ip, lifetime(request).min(lease)))
    }))
}

/// A description whose only service has this control URL.
fn description(control: &str) -> String {
    format!(
        "<root><device><serviceList><service><serviceType>{KIND}</serviceType>\
         <controlURL>{control}</controlURL></service></serviceList></device></root>"
    )
}

fn value<'a>(request: &'a str, name: &str) -> &'a str {
    let (_, rest) = request.split_once(&format!("<{name}>")).unwrap();
    rest.split_once('<').unwrap().0
}

/// Responds as a router with UPnP does. `add` is the response to a mapping request.
fn page(request: &str, stream: &mut TcpStream, add: impl Fn(&str) -> Result<(), u16>) {
    let response = |name: &str, body: &str| {
        format!(
            "<s:Envelope xmlns:s='e'><s:Body><u:{name}Response xmlns:u='{KIND}'>{body}\
             </u:{name}Response></s:Body></s:Envelope>"
        )
    };
    if request.starts_with("GET /root.xml ") {
        respond(stream, "200 OK", &description("/control"));
    } else if request.contains("#GetExternalIPAddress\"") {
        let ip = format!("<NewExternalIPAddress>{EXTERNAL}</NewExternalIPAddress>");
        respond(stream, "200 OK", &response("GetExternalIPAddress", &ip));
    } else if request.contains("#DeletePortMapping\"") {
        respond(stream, "200 OK", &response("DeletePortMapping", ""));
    } else if request.contains("#AddPortMapping\"") {
        match add(request) {
            Ok(()) => respond(stream, "200 OK", &response("AddPortMapping", "")),
            Err(code) => {
                let fault = format!("<e><errorCode>{code}</errorCode></e>");
                respond(stream, "500 Internal Server Error", &fault);
            }
        }
    } else {
        respond(stream, "404 Not Found", "");
    }
}

/// A router with UPnP that records mapping requests, and grants those that `add` accepts.
fn with_upnp(add: impl Fn(&str) -> Result<(), u16> + Send + 'static) -> Router {
    let router = Router::new();
    let record = router.recorder();
    router.upnp(
        "OWN/root.xml",
        Box::new(move |request, stream| {
            if request.contains("PortMapping\"") {
                let verb = if request.contains("#Add") { "add" } else { "delete" };
                record(format!("{verb} {}", value(request, "NewExternalPort")));
            }
            page(request, stream, &add);
        }),
    )
}

#[tokio::test]
async fn pcp_maps_a_port_until_it_is_stopped() {
    let router = with_pcp(EXTERNAL, 3600);
    let mut mapping = start(&router);
    assert_eq!(mapping.address().await.unwrap().to_string(), "203.0.113.7:41800");
    assert!(mapping.address().await.is_err(), "the address is returned twice");
    assert_eq!(router.log(), ["PCP 3600 s"]);
    mapping.stop().await;
    assert_eq!(router.log(), ["PCP 3600 s", "PCP 0 s"]);
}

#[tokio::test]
async fn a_mapping_that_is_dropped_is_removed() {
    let router = with_pcp(EXTERNAL, 3600);
    let mut mapping = start(&router);
    mapping.address().await.unwrap();
    drop(mapping);
    let until = Instant::now() + Duration::from_secs(60);
    while router.log().len() < 2 {
        assert!(Instant::now() < until, "{:?}", router.log());
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(router.log()[1], "PCP 0 s");
}

#[tokio::test]
async fn a_pcp_mapping_is_renewed_with_its_nonce() {
    let router = Router::new();
    let record = router.recorder();
    let router = router.pcp(Box::new(move |request| {
        record(format!("{:?}", &request[24..36]));
        Some(granted(request, EXTERNAL, 120))
    }));
    let mut mapping = request_mapping(router.route(), PORT).await.unwrap();
    assert_eq!(mapping.lease(), Duration::from_secs(120));
    mapping.renew().await.unwrap();
    let nonces = router.log();
    assert!(nonces.len() == 2 && nonces[0] == nonces[1], "{nonces:?}");
}

/// A router that has only NAT-PMP, maps another port than requested, and returns its address if `has_address` says so.
fn with_nat_pmp(has_address: impl Fn() -> bool + Send + 'static) -> Router {
    let router = Router::new();
    let record = router.recorder();
    router.pcp(Box::new(move |request| {
        Some(match request {
            // "Unsupported version".
            [2, ..] => vec![0, 0x81, 0, 1, 0, 0, 0, 1],
            [0, 0] if has_address() => {
                [&[0, 0x80, 0, 0, 0, 0, 0, 1][..], &EXTERNAL.octets()].concat()
            }
            [0, 2, _, _, ports @ ..] => {
                record(format!("NAT-PMP {ports:?}"));
                let is_removed = ports[4..] == [0; 4];
                let external: [u8; 2] = if is_removed { [0; 2] } else { [200, 1] };
                [&[0, 0x82, 0, 0, 0, 0, 0, 1][..], &ports[..2], &external, &ports[4..]].concat()
            }
            _ => return None,
        })
    }))
}

#[tokio::test]
async fn nat_pmp_is_used_with_a_router_that_has_only_that() {
    let router = with_nat_pmp(|| true);
    let mut mapping = start(&router);
    // The router has chosen another port.
    assert_eq!(mapping.address().await.unwrap().to_string(), "203.0.113.7:51201");
    mapping.stop().await;
    let [high, low] = PORT.get().to_be_bytes();
    let requested = format!("NAT-PMP {:?}", [high, low, high, low, 0, 0, 0x0e, 0x10]);
    let removed = format!("NAT-PMP {:?}", [high, low, 0, 0, 0, 0, 0, 0]);
    assert_eq!(router.log(), [requested, removed]);
}

/// Formerly, it was removed.
#[tokio::test]
async fn a_renewed_mapping_stays_if_the_router_does_not_return_its_address_again() {
    let (requests, silent) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let is_silent = Arc::clone(&silent);
    let router = with_nat_pmp(move || {
        let is_first = requests.fetch_add(1, Ordering::Relaxed) == 0;
        if !is_first {
            is_silent.notify_one();
        }
        is_first
    });
    let mut mapping = request_mapping(router.route(), PORT).await.unwrap();
    // From then on, nothing is waited for except the response that does not come.
    let skip_time = async {
        silent.notified().await;
        tokio::time::pause();
    };
    let (renewed, ()) = tokio::join!(mapping.renew(), skip_time);
    renewed.unwrap();
    assert_eq!(mapping.address().to_string(), "203.0.113.7:51201");
    let [high, low] = PORT.get().to_be_bytes();
    let mapped = |external: [u8; 2]| {
        let ports = [&[high, low], &external[..], &[0, 0, 0x0e, 0x10]].concat();
        format!("NAT-PMP {ports:?}")
    };
    assert_eq!(router.log(), [mapped([high, low]), mapped([200, 1])]);
}

#[tokio::test]
async fn upnp_maps_a_port_until_it_is_stopped() {
    let router = with_upnp(|request| {
        assert_eq!(value(request, "NewInternalClient"), "127.0.0.1");
        assert_eq!(value(request, "NewInternalPort"), "41800");
        assert_eq!(value(request, "NewLeaseDuration"), "3600");
        assert_eq!(value(request, "NewProtocol"), "TCP");
        Ok(())
    });
    let mut mapping = start(&router);
    assert_eq!(mapping.address().await.unwrap().to_string(), "203.0.113.7:41800");
    mapping.stop().await;
    assert_eq!(router.log(), ["add 41800", "delete 41800"]);
}

/// A router with both has one mapping.
#[tokio::test]
async fn upnp_maps_nothing_where_pcp_does() {
    let router = with_upnp(|_| Ok(()));
    let router =
        router.pcp(Box::new(|request| Some(granted(request, EXTERNAL, lifetime(request)))));
    let mut mapping = start(&router);
    mapping.address().await.unwrap();
    mapping.stop().await;
    assert!(router.log().is_empty(), "{:?}", router.log());
}

#[tokio::test]
async fn another_external_port_is_used_if_the_same_one_is_taken() {
    let router = with_upnp(|request| match value(request, "NewExternalPort") {
        "41800" => Err(718),
        _ => Ok(()),
    });
    let mut mapping = start(&router);
    let address = mapping.address().await.unwrap().socket();
    assert!(address.port() >= 32_768 && address.port() != 41_800, "{address}");
    mapping.stop().await;
    assert_eq!(router.log()[2], format!("delete {}", address.port()));
    let full = with_upnp(|_| Err(718));
    let cause = refusal(&full).await;
    assert!(cause.contains("the port belongs to another machine"), "{cause}");
    assert_eq!(full.log().len(), 4);
}

#[tokio::test]
async fn refusals_of_the_router_are_reported() {
    for (code, expected) in [
        (606, "it does not permit this machine to map ports"),
        // Such a mapping would outlive haul.
        (725, "it supports only permanent mappings"),
        (501, "error 501"),
    ] {
        let cause = refusal(&with_upnp(move |_| Err(code))).await;
        assert!(cause.contains(expected), "{cause}");
    }
    // "Not authorized".
    let router = Router::new().pcp(Box::new(|request| {
        let mut response = granted(request, EXTERNAL, 60);
        response[3] = 2;
        Some(response)
    }));
    let cause = refusal(&router).await;
    assert!(cause.contains("Not authorized") && cause.contains("UPnP: no response"), "{cause}");
}

#[tokio::test]
async fn a_mapping_of_a_router_behind_another_one_is_removed() {
    let router = with_pcp(Ipv4Addr::new(100, 64, 0, 7), 3600);
    let cause = refusal(&router).await;
    assert!(cause.contains("100.64.0.7 is private: it is behind another router"), "{cause}");
    // A lifetime of 0 s removes the mapping.
    assert_eq!(router.log(), ["PCP 3600 s", "PCP 0 s"]);
}

#[tokio::test]
async fn forged_and_malformed_packets_are_rejected() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(Change, &str); 6] = [
        (|response| response[24] ^= 1, "nonce"),
        (|response| response[40] ^= 1, "port"),
        (|response| response[42..44].fill(0), "port"),
        (|response| response.truncate(40), "bytes"),
        (|response| response[4..8].fill(0), "0 s"),
        (|response| response.clear(), "bytes"),
    ];
    for (change, expected) in changes {
        let router = Router::new().pcp(Box::new(move |request| {
            let mut response = granted(request, EXTERNAL, 3600);
            change(&mut response);
            Some(response)
        }));
        let cause = refusal(&router).await.to_lowercase();
        assert!(cause.contains(expected), "{expected}: {cause}");
    }
}

#[tokio::test]
async fn requests_go_only_to_the_routers_own_address() {
    let other_router = with_upnp(|_| Ok(()));
    let other = other_router.address();
    for location in [format!("http://{other}/root.xml"), "http://example.org/root.xml".to_owned()] {
        let router = Router::new().upnp(&location, Box::new(|_, _| panic!("unexpected request")));
        assert!(refusal(&router).await.contains("UPnP: no response"));
    }
    let router = Router::new().upnp(
        "OWN/root.xml",
        Box::new(move |request, stream| {
            assert!(request.starts_with("GET "), "{request}");
            respond(stream, "200 OK", &description(&format!("http://{other}/control")));
        }),
    );
    let cause = refusal(&router).await;
    assert!(cause.contains("no WAN connection"), "{cause}");
    assert!(other_router.log().is_empty());
}

#[tokio::test]
async fn endless_responses_are_cut_off() {
    let beginnings = ["HTTP/1.1 200 OK\r\n\r\n<root>", "HTTP/1.1 200 OK\r\nX: "];
    for beginning in beginnings {
        let sent = Arc::new(Mutex::new(0));
        let count = Arc::clone(&sent);
        let router = Router::new().upnp(
            "OWN/root.xml",
            Box::new(move |_, stream| {
                let mut chunk = beginning.as_bytes().to_vec();
                while stream.write_all(&chunk).is_ok() {
                    *count.lock().unwrap() += chunk.len();
                    chunk = vec![b'a'; 64 << 10];
                }
            }),
        );
        let cause = refusal(&router).await;
        assert!(cause.contains("the router's response is broken"), "{cause}");
        // Some bytes beyond the limit of a response fit into buffers of the kernel.
        sleep(Duration::from_millis(50)).await;
        let sent = *sent.lock().unwrap();
        assert!(sent < 16 << 20, "{sent} bytes");
    }
}

/// Asserts that at least one of 20 attempts is refused for this reason within 2.5 s. In the others, the machine may
/// stall.
async fn refusal_in_time(router: &Router, expected: &str) {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let start_time = Instant::now();
        let cause = start_hurried(router).address().await.unwrap_err().cause();
        let took = start_time.elapsed();
        if cause.contains(expected) && took < Duration::from_millis(2500) {
            return;
        }
        seen.push((cause, took));
    }
    panic!("{seen:?}");
}

#[tokio::test]
async fn a_silent_router_delays_the_ticket_only_briefly() {
    refusal_in_time(&Router::new(), "UPnP: no response").await;
    // This router accepts a connection, but sends nothing.
    let ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&ended);
    let router = Router::new().upnp(
        "OWN/root.xml",
        Box::new(move |_, _| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }),
    );
    refusal_in_time(&router, "takes too long").await;
    ended.store(true, Ordering::Relaxed);
}

#[tokio::test]
async fn a_mapping_that_comes_too_late_is_removed() {
    let is_late = Arc::new(AtomicBool::new(false));
    let may_respond = Arc::clone(&is_late);
    let router = with_upnp(move |_| {
        while !may_respond.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    });
    let mut mapping = start_hurried(&router);
    assert!(mapping.address().await.unwrap_err().cause().contains("takes too long"));
    is_late.store(true, Ordering::Relaxed);
    let until = Instant::now() + Duration::from_secs(60);
    while router.log() != ["add 41800", "delete 41800"] {
        assert!(Instant::now() < until, "{:?}", router.log());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_machine_in_another_network_gets_a_new_mapping() {
    let (old, new) = (with_pcp(EXTERNAL, 3600), with_pcp(Ipv4Addr::new(203, 0, 113, 8), 3600));
    let route = new.route();
    let routes: Routes = Box::new(move || Ok(route));
    let keeper = Keeper { port: PORT, routes, observer: Box::new(|_| {}) };
    let mut mapping = request_mapping(old.route(), PORT).await.unwrap();
    let (_stop, mut stopped) = oneshot::channel();
    keeper.renew(&mut mapping, &mut stopped).await.unwrap().unwrap();
    assert_eq!(mapping.address().to_string(), "203.0.113.7:41800");
    drop(old);
    keeper.renew(&mut mapping, &mut stopped).await.unwrap().unwrap();
    assert_eq!(mapping.address().to_string(), "203.0.113.8:41800");
}

/// Formerly, such a mapping stayed for its lease.
#[tokio::test]
async fn a_new_mapping_that_is_requested_when_it_is_stopped_is_removed() {
    let (requested, stop_now) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (new, is_requested, is_stopped) = (Router::new(), requested.clone(), stop_now.clone());
    let record = new.recorder();
    let new = new.pcp(Box::new(move |request| {
        record(format!("PCP {} s", lifetime(request)));
        is_requested.notify_one();
        while !is_stopped.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(granted(request, EXTERNAL, lifetime(request)))
    }));
    let old = with_pcp(EXTERNAL, 3600);
    let mut mapping = request_mapping(old.route(), PORT).await.unwrap();
    drop(old);
    let route = new.route();
    let observer: Observer = Box::new(|event| panic!("{event:?}"));
    let keeper = Keeper { port: PORT, routes: Box::new(move || Ok(route)), observer };
    let (stop, mut stopped) = oneshot::channel();
    let stopping = async {
        requested.notified().await;
        drop(stop);
        // The keeper sees that before the router responds.
        sleep(Duration::from_millis(50)).await;
        stop_now.store(true, Ordering::Relaxed);
    };
    let (outcome, ()) = tokio::join!(keeper.renew(&mut mapping, &mut stopped), stopping);
    assert!(outcome.is_none());
    // Its caller removes the mapping.
    mapping.remove().await.unwrap();
    assert_eq!(new.log(), ["PCP 3600 s", "PCP 0 s"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_due_after_its_time() {
    let start_time = Instant::now();
    Due::after(Duration::from_secs(1800)).wait().await;
    assert_eq!(start_time.elapsed().as_secs(), 1800);
    // The clock is ahead of the timer, since the machine was suspended.
    let clock = SystemTime::now();
    Due { at: Instant::now() + Duration::from_secs(1800), clock }.wait().await;
    assert_eq!(start_time.elapsed().as_secs(), 1800);
}

#[test]
fn the_port_is_that_at_the_address_towards_the_router() {
    let own = Ipv4Addr::new(10, 0, 2, 2);
    let of = |texts: &[&str]| {
        let listening: Vec<SocketAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
        port(&listening, own).map(NonZeroU16::get)
    };
    assert_eq!(of(&["[::]:1", "0.0.0.0:2"]), Some(2));
    assert_eq!(of(&["10.0.3.2:1", "10.0.2.2:2"]), Some(2));
    assert_eq!(of(&["127.0.0.1:1", "[::]:2", "10.0.3.2:3"]), None);
}
