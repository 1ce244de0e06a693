//! A host and its port as one text, as URLs and messages have it.

/// `host:port`, an IPv6 address in its brackets.
pub fn with_port(host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == 0 { host } else { format!("{host}:{port}") }
}
