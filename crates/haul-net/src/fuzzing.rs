//! Entry points of the fuzz targets: each takes arbitrary bytes and panics if an invariant is
//! violated.

use futures_util::FutureExt;
use tokio::io::{join, sink};

use super::secret::Secret;
use super::socks::{Socks5, Target};

/// Parses the responses of a SOCKS proxy, and checks that a connection counts as established only
/// after complete responses.
pub fn socks(data: &[u8]) {
    let login = Some(("user".to_owned(), Secret::new("password")));
    for login in [None, login] {
        let Some(proxy) = Socks5::new("p", 1080, login, true) else { return };
        let mut stream = join(data, sink());
        let target = Target::named("host.example", 443);
        let connected = proxy.connect(&mut stream, &target).now_or_never();
        let (left, _) = stream.into_inner();
        // At least 9 bytes were consumed: the choice of a method (2), the head of the reply (4), an
        // empty name with its length (1), and the port (2).
        if matches!(connected, Some(Ok(_))) {
            assert!(data.starts_with(&[5]) && left.len() + 2 + 4 + 2 < data.len(), "{data:?}");
        }
    }
}
