//! URLs at the router.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Longest path in bytes.
const MAX_PATH: usize = 1024;

/// An `http` URL whose host is the router's own address. Nothing else is ever requested: whatever URL a router, or a
/// machine that poses as it, sends, haul connects to no other machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RouterUrl {
    address: SocketAddrV4,
    path: String,
}

impl RouterUrl {
    /// Parses a URL; `None` if it is not at this router.
    pub(super) fn parse(text: &str, router: Ipv4Addr) -> Option<Self> {
        const SCHEME: &str = "http://";
        let scheme = text.get(..SCHEME.len())?;
        let rest = text.get(SCHEME.len()..)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = match authority.parse::<SocketAddrV4>() {
            Ok(address) => address,
            Err(_) => SocketAddrV4::new(authority.parse().ok()?, 80),
        };
        let path = if path.is_empty() { "/" } else { path };
        let is_at_router = *address.ip() == router && address.port() != 0;
        (is_at_router && is_path(path)).then(|| Self { address, path: path.to_owned() })
    }

    /// Resolves a reference in a document at this URL; `None` if it does not lead to this router.
    pub(super) fn join(&self, reference: &str) -> Option<Self> {
        if reference.contains("://") {
            return Self::parse(reference, *self.address.ip());
        }
        let path = if reference.starts_with('/') {
            reference.to_owned()
        } else {
            let (directory, _) = self.path.rsplit_once('/')?;
            format!("{directory}/{reference}")
        };
        is_path(&path).then_some(Self { address: self.address, path })
    }

    /// The address to connect to.
    pub(super) const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Path and query.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// Whether it is a valid path of a request, with or without a query.
fn is_path(path: &str) -> bool {
    let is_ok = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    path.len() <= MAX_PATH && path.starts_with('/') && path.bytes().all(is_ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

    fn shown(url: Option<RouterUrl>) -> Option<String> {
        url.map(|url| format!("{}{}", url.address(), url.path()))
    }

    #[test]
    fn a_url_at_the_routers_address_is_used() {
        for (text, expected) in [
            ("http://192.168.1.1:5000/rootDesc.xml", "192.168.1.1:5000/rootDesc.xml"),
            ("HTTP://192.168.1.1/a/b?c=d", "192.168.1.1:80/a/b?c=d"),
            ("http://192.168.1.1", "192.168.1.1:80/"),
        ] {
            assert_eq!(shown(RouterUrl::parse(text, ROUTER)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_url_elsewhere_is_not_used() {
        for text in [
            "",
            "http://",
            "http:/",
            "/rootDesc.xml",
            "http://192.168.1.2/",
            "http://192.168.1.1.example/",
            "http://router/",
            "http://user@192.168.1.1/",
            "http://192.168.1.1@192.168.1.2/",
            "http://192.168.1.1:0/",
            "http://192.168.1.1:65536/",
            "http://[::ffff:192.168.1.1]/",
            "https://192.168.1.1/",
            "http://192.168.1.1/a b",
            "http://192.168.1.1/a\r\nX: y",
            "http://192.168.1.1/ü",
            "http://192.168.1.1?a",
            "ühttp://192.168.1.1/",
            &format!("http://192.168.1.1/{}", "a".repeat(MAX_PATH)),
        ] {
            assert_eq!(RouterUrl::parse(text, ROUTER), None, "{text}");
        }
    }

    #[test]
    fn references_are_resolved_at_the_router() {
        let base = RouterUrl::parse("http://192.168.1.1:5000/igd/root.xml", ROUTER).unwrap();
        for (reference, expected) in [
            ("/ctl", Some("192.168.1.1:5000/ctl")),
            ("ctl", Some("192.168.1.1:5000/igd/ctl")),
            ("http://192.168.1.1:80/ctl", Some("192.168.1.1:80/ctl")),
            ("http://192.168.1.2/ctl", None),
            ("ftp://192.168.1.1/ctl", None),
            ("/a b", None),
        ] {
            assert_eq!(shown(base.join(reference)).as_deref(), expected, "{reference}");
        }
        // Taken as a path on the router, not as the host `a` (RFC 3986, section 4.2).
        assert_eq!(shown(base.join("//a/b")).as_deref(), Some("192.168.1.1:5000//a/b"));
    }
}
