//! The cookies of one host of the command, and of the servers that it redirects to.
//!
//! Servers set many cookies that no download needs, and some answer requests with the same cookie one after the
//! other. So a jar is empty until the user gives it cookies, or a redirect sets one: that is how sites sign in.
//! From then on it does what RFC 6265 says.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use http::header::SET_COOKIE;
use zeroize::Zeroizing;

use super::head::Head;
use crate::parse::Url;
use crate::parse::cookies::Cookie;

/// Cookies of all servers together; the oldest give way.
const MOST: usize = 1000;

/// Cookies of one request, and their bytes (curl: `MAX_COOKIE_SEND_AMOUNT`, `MAX_COOKIE_HEADER_LEN`).
const SENT_MOST: usize = 150;
const SENT_MOST_BYTES: usize = 8190;

/// Cookies.
#[derive(Debug)]
pub struct Jar {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    cookies: Vec<Cookie>,
    /// Whether cookies are taken from all responses.
    is_used: bool,
    /// How often a response has set or removed one.
    changes: u64,
}

impl Jar {
    /// With cookies that the user gives. `is_used`: more are taken from all responses even if there are none.
    pub fn new(cookies: Vec<Cookie>, is_used: bool) -> Self {
        let mut state = State { is_used: is_used || !cookies.is_empty(), ..State::default() };
        let now = now();
        cookies.into_iter().for_each(|cookie| state.put(cookie, now));
        Self { state: Mutex::new(state) }
    }

    /// Takes what a response sets.
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

    /// How often responses have changed something.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// What a request for `url` has to say, if anything. `is_private`: it goes over TLS, or stays on this machine.
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
        // The order of those with paths of one length is that in which they came.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path().len()));
        let mut text = Zeroizing::new(String::new());
        for cookie in sent.into_iter().take(SENT_MOST) {
            let separator = if text.is_empty() { "" } else { "; " };
            let (name, value) = (cookie.name(), cookie.value());
            if text.len() + separator.len() + name.len() + 1 + value.len() > SENT_MOST_BYTES {
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

    /// All of them that are not over.
    pub fn all(&self) -> Vec<Cookie> {
        let now = now();
        self.lock().cookies.iter().filter(|cookie| !cookie.is_expired(now)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts a cookie in the place of the one that it replaces. One that is over only removes that.
    fn put(&mut self, cookie: Cookie, now: i64) {
        let known = self.cookies.iter().position(|known| cookie.replaces(known));
        match (known, cookie.is_expired(now)) {
            (Some(at), true) => drop(self.cookies.remove(at)),
            (Some(at), false) => self.cookies[at] = cookie,
            (None, true) => {}
            (None, false) => {
                if self.cookies.len() >= MOST {
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

    fn answered(jar: &Jar, status: u16, url: &str, cookies: &[&str]) {
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
    fn cookies_count_once_a_redirect_sets_one() {
        let jar = Jar::new(Vec::new(), false);
        answered(&jar, 200, "https://h/f", &["track=me"]);
        assert_eq!(sent(&jar, "https://h/f"), "");
        answered(&jar, 302, "https://h/login", &["id=1; Path=/", "other=2; Path=/", "bad"]);
        answered(&jar, 200, "https://h/f", &["more=3"]);
        assert_eq!(sent(&jar, "https://h/f"), "id=1; other=2; more=3");
        assert_eq!(sent(&jar, "https://other/f"), "");
    }

    #[test]
    fn a_later_cookie_replaces_an_earlier_one_and_the_longer_path_goes_first() {
        let origin = Url::parse("https://h/").unwrap().origin;
        let given = vec![Cookie::given("id", "given", &origin), Cookie::given("x", "y", &origin)];
        let jar = Jar::new(given, false);
        answered(&jar, 200, "https://h/a/b", &["id=new; Path=/", "deep=z"]);
        assert_eq!(sent(&jar, "https://h/a/c"), "deep=z; id=new; x=y");
        let changes = jar.changes();
        answered(&jar, 200, "https://h/a/b", &["x=; Path=/; Max-Age=0"]);
        assert_eq!(sent(&jar, "https://h/a/c"), "deep=z; id=new");
        assert!(jar.changes() > changes);
        let names: Vec<_> = jar.all().iter().map(|cookie| cookie.name().to_owned()).collect();
        assert_eq!(names, ["id", "deep"]);
    }

    #[test]
    fn a_secure_cookie_of_this_machine_is_not_told_to_a_proxy() {
        let url = Url::parse("http://localhost/").unwrap();
        let jar = Jar::new(Vec::new(), true);
        answered(&jar, 200, "http://localhost/", &["a=1; Secure", "b=2"]);
        assert_eq!(jar.header(&url, true).unwrap(), "a=1; b=2");
        assert_eq!(jar.header(&url, false).unwrap(), "b=2");
    }

    #[test]
    fn a_server_cannot_make_requests_too_long() {
        let jar = Jar::new(Vec::new(), true);
        for number in 0..2 * MOST {
            answered(&jar, 200, "https://h/", &[&format!("n{number}={}", "x".repeat(200))]);
        }
        assert_eq!(jar.all().len(), MOST);
        assert!(sent(&jar, "https://h/").len() <= SENT_MOST_BYTES);
    }
}
