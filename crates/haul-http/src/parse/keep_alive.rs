//! `Keep-Alive` (RFC 2068, section 19.7.1.1): how long a server keeps an idle connection open.

use std::time::Duration;

/// The `timeout` parameter, in seconds; `None` if it is missing or invalid.
pub fn parse(value: &str) -> Option<Duration> {
    let mut parameters = value.split(',').filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().trim_matches('"').parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_found_among_other_parameters() {
        let seconds = |value| parse(value).map(|timeout| timeout.as_secs());
        assert_eq!(seconds("timeout=5, max=100"), Some(5));
        assert_eq!(seconds("max=100,Timeout = \"15\""), Some(15));
        assert_eq!(seconds("timeout=0"), Some(0));
        assert_eq!(seconds("max=100"), None);
        assert_eq!(seconds("timeout=-1"), None);
        assert_eq!(seconds("timeout=99999999999999999999"), None);
        assert_eq!(seconds("timeout"), None);
        assert_eq!(seconds(""), None);
    }
}
