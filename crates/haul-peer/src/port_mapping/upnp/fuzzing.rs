//! Entry point of the fuzz target: what a router, or a machine that poses as it, sends.

use std::net::Ipv4Addr;

use super::search::location;
use super::url::RouterUrl;
use super::xml::{description, text_of};
use crate::port_mapping::limits;

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Decodes `data` as a response to the search, as a description and as a response to a SOAP request. Every URL that
/// comes out of it is at the router.
pub fn received(data: &[u8]) {
    if let Some(url) = location(data, ROUTER) {
        check(&url);
    }
    let Ok(document) = std::str::from_utf8(data) else { return };
    let own = RouterUrl::parse(&format!("http://{ROUTER}/d/description.xml"), ROUTER);
    if let (Some(own), Some(found)) = (own, description(document)) {
        assert!(found.services.len() <= limits::SERVICES);
        let base = found.base.and_then(|base| RouterUrl::parse(&base, ROUTER)).unwrap_or(own);
        check(&base);
        let controls = found.services.iter().filter_map(|service| base.join(&service.control));
        controls.for_each(|control| check(&control));
    }
    drop(text_of(document, "errorCode"));
}

fn check(url: &RouterUrl) {
    assert_eq!(*url.address().ip(), ROUTER);
    assert!(url.path().starts_with('/') && !url.path().contains(char::is_whitespace));
}
