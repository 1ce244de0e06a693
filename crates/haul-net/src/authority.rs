//! Host and port as text, for URLs and messages.

/// `host:port`, with brackets around an IPv6 address, and without the port if that is 0.
pub fn with_port(host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == 0 { host } else { format!("{host}:{port}") }
}
