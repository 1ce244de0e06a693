//! The cookies of one host, and of the servers that it redirects to.
//!
//! Servers set many cookies that no download needs, and some process requests with the same cookie one after the other.
//! So a jar ignores cookies until the user supplies some, or a redirect sets one, which is how sites sign in. From then
//! on it implements RFC 6265.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use http::header::SET_COOKIE;
use zeroize::Zeroizing;

use super::head::Head;
use crate::parse::Url;
use crate::parse::cookies::Cookie;

/// Most cookies of all servers together; further ones replace the oldest.
const MAX_COOKIES: usize = 1000;

/// Most cookies sent with one request (curl: `MAX_COOKIE_SEND_AMOUNT`).
const MAX_SENT: usize = 150;
/// Most bytes of these (curl: `MAX_COOKIE_HEADER_LEN`).
const MAX_SENT_BYTES: usize = 8190;

/// A cookie jar.
#[derive(Debug)]
pub struct Jar {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    cookies: Vec<Cookie>,
    /// Whether cookies of all responses are accepted.
    is_used: bool,
    /// How often a response has set or removed a cookie.
    changes: u64,
}

impl Jar {
    /// A jar with the cookies of the user. `is_used`: accept cookies of all responses even if the user has supplied
    /// none.
    pub fn new(cookies: Vec<Cookie>, is_used: bool) -> Self {
        let mut state = State { is_used: is_used || !cookies.is_empty(), ..State::default() };
        let now = now();
        cookies.into_iter().for_each(|cookie| state.put(cookie, now));
        Self { state: Mutex::new(state) }
    }

    /// Stores the cookies that a response sets.
    pub fn learn(&self, head: &Head) {
        let received = head.headers.get_all(SET_COOKIE);
        if received.iter().next().is_none() {
            return;
        }
        let mut state = self.lock();
        if !state.is_used && !head.status.is_redirection() {
            return;
        }
        let now = now();
        let texts = received.iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
        for cookie in texts.filter_map(|text| Cookie::received(text, &head.url, now)) {
            state.is_used = true;
            state.changes += 1;
            state.put(cookie, now);
        }
    }

    /// How often responses have changed the jar.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// The header field `Cookie` of a request for `url`, if any. `is_private`: the request uses TLS or stays on this
    /// machine.
    pub fn header(&self, url: &Url, is_private: bool) -> Option<HeaderValue> {
        let state = self.lock();
        if state.cookies.is_empty() {
            return None;
        }
        let now = now();
        let fits = |cookie: &&Cookie| {
            !cookie.is_expired(now)
                && cookie.goes_to(url)
                && (is_private || !cookie.needs_privacy())
        };
        let mut sent: Vec<_> = state.cookies.iter().filter(fits).collect();
        // A stable sort: cookies with paths of equal length stay in order of arrival.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path().len()));
        let mut text = Zeroizing::new(String::new());
        for cookie in sent.into_iter().take(MAX_SENT) {
            let separator = if text.is_empty() { "" } else { "; " };
            let (name, value) = (cookie.name(), cookie.value());
            if text.len() + separator.len() + name.len() + 1 + value.len() > MAX_SENT_BYTES {
                break;
            }
            for part in [separator, name, "=", value] {
                text.push_str(part);
            }
        }
        let mut value =
            HeaderValue::from_bytes(text.as_bytes()).ok().filter(|value| !value.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }

    /// All cookies that have not expired.
    pub fn all(&self) -> Vec<Cookie> {
        let now = now();
        self.lock().cookies.iter().filter(|cookie| !cookie.is_expired(now)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Stores a cookie in place of the one that it replaces. An expired cookie only removes that one.
    fn put(&mut self, cookie: Cookie, now: i64) {
        let known = self.cookies.iter().position(|known| cookie.replaces(known));
        match (known, cookie.is_expired(now)) {
            (Some(at), true) => drop(self.cookies.remove(at)),
            (Some(at), false) => self.cookies[at] = cookie,
            (None, true) => {}
            (None, false) => {
                if self.cookies.len() >= MAX_COOKIES {
                    self.cookies.remove(0);
                }
                self.cookies.push(cookie);
            }
        }
    }
}

/// Seconds since the epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn receive(jar: &Jar, status: u16, url: &str, cookies: &[&str]) {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(SET_COOKIE, HeaderValue::from_str(cookie).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        jar.learn(&Head { status, headers, url: Url::parse(url).unwrap() });
    }

    fn sent(jar: &Jar, url: &str) -> String {
        let value = jar.header(&Url::parse(url).unwrap(), true);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_are_ignored_until_a_redirect_sets_one() {
        let jar = Jar::new(Vec::new(), false);
        receive(&jar, 200, "https://h/f", &["track=me"]);
        assert_eq!(sent(&jar, "https://h/f"), "");
        receive(&jar, 302, "https://h/login", &["id=1; Path=/", "other=2; Path=/", "bad"]);
        receive(&jar, 200, "https://h/f", &["more=3"]);
        assert_eq!(sent(&jar, "https://h/f"), "id=1; other=2; more=3");
        assert_eq!(sent(&jar, "https://other/f"), "");
    }

    #[test]
    fn a_later_cookie_replaces_an_earlier_one_and_longer_paths_come_first() {
        let origin = Url::parse("https://h/").unwrap().origin;
        let given = vec![Cookie::given("id", "given", &origin), Cookie::given("x", "y", &origin)];
        let jar = Jar::new(given, false);
        receive(&jar, 200, "https://h/a/b", &["id=new; Path=/", "deep=z"]);
        assert_eq!(sent(&jar, "https://h/a/c"), "deep=z; id=new; x=y");
        let changes = jar.changes();
        receive(&jar, 200, "https://h/a/b", &["x=; Path=/; Max-Age=0"]);
        assert_eq!(sent(&jar, "https://h/a/c"), "deep=z; id=new");
        assert!(jar.changes() > changes);
        let names: Vec<_> = jar.all().iter().map(|cookie| cookie.name().to_owned()).collect();
        assert_eq!(names, ["id", "deep"]);
    }

    #[test]
    fn a_secure_cookie_for_localhost_is_not_sent_to_a_proxy() {
        let url = Url::parse("http://localhost/").unwrap();
        let jar = Jar::new(Vec::new(), true);
        receive(&jar, 200, "http://localhost/", &["a=1; Secure", "b=2"]);
        assert_eq!(jar.header(&url, true).unwrap(), "a=1; b=2");
        assert_eq!(jar.header(&url, false).unwrap(), "b=2");
    }

    #[test]
    fn number_and_length_of_cookies_are_limited() {
        let jar = Jar::new(Vec::new(), true);
        for number in 0..2 * MAX_COOKIES {
            receive(&jar, 200, "https://h/", &[&format!("n{number}={}", "x".repeat(200))]);
        }
        assert_eq!(jar.all().len(), MAX_COOKIES);
        assert!(sent(&jar, "https://h/").len() <= MAX_SENT_BYTES);
    }
}
