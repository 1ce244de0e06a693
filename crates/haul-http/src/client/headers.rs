//! Header fields and cookies from the user, for the servers that the command names (`User-Agent`: for all).
//!
//! Their values may be secrets: no error and no debug output repeats them.

use std::fmt;

use http::header::{COOKIE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

/// Fields that the user cannot set, and why.
const OWN: &[(&[&str], &str)] = &[
    (&["host"], "haul takes it from the location; name the server there"),
    (
        &["content-length", "transfer-encoding"],
        "it marks the end of a request, which haul does itself",
    ),
    (&["te", "trailer"], "it is about the coding of messages, which haul chooses itself"),
    (
        &["connection", "keep-alive", "proxy-connection", "upgrade", "expect"],
        "it is about the connection, which haul manages",
    ),
    (
        &["range", "if-range", "content-range", "x-update-range"],
        "haul requests the ranges of a file itself",
    ),
    (
        &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"],
        "haul checks itself whether a file has changed",
    ),
    (&["accept-encoding", "content-encoding"], "haul transfers files as they are stored"),
    (
        &["depth", "destination", "overwrite", "if", "lock-token"],
        "it is part of WebDAV requests, which haul writes itself",
    ),
    (&["proxy-authorization"], "write user and password into the URL of the proxy"),
];

/// Header fields and cookies from the user.
#[derive(Clone, Default)]
pub struct Headers {
    fields: HeaderMap,
    agent: Option<HeaderValue>,
    cookies: Vec<(String, Zeroizing<String>)>,
}

/// Shows names only.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cookies = self.cookies.iter().map(|(name, _)| name);
        f.debug_list().entries(self.fields.keys()).entries(cookies).finish()
    }
}

/// Why a header field cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Nothing separates name and value.
    #[error("no colon; write 'Name: value'")]
    NoColon,
    /// The name has an invalid character.
    #[error("the text before the colon is not a header field name; write 'Name: value'")]
    Name,
    /// The value has control characters.
    #[error("the value of {0} has a line break or another control character")]
    Value(HeaderName),
    /// There is no value.
    #[error("{0} has no value")]
    Empty(HeaderName),
    /// The user cannot set it.
    #[error("{0} cannot be set: {1}")]
    Own(HeaderName, &'static str),
    /// There is no cookie, or one has no name or no `=`.
    #[error("a cookie is 'NAME=VALUE'; several are separated by '; '")]
    Cookie,
}

impl Headers {
    /// Adds `Name: value`.
    ///
    /// # Errors
    /// The line is invalid, or haul sets the field itself.
    pub fn add_line(&mut self, line: &str) -> Result<(), HeaderError> {
        let (name, value) = line.split_once(':').ok_or(HeaderError::NoColon)?;
        self.add(name, value)
    }

    /// Adds a field. White space around the value is trimmed; `User-Agent` replaces an earlier one, and
    /// `Cookie` adds cookies.
    ///
    /// # Errors
    /// As [`Headers::add_line`].
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        let name: HeaderName = name.parse().map_err(|_| HeaderError::Name)?;
        if let Some((_, why)) = OWN.iter().find(|(names, _)| names.contains(&name.as_str())) {
            return Err(HeaderError::Own(name, why));
        }
        let value = value.trim_matches([' ', '\t']);
        let Ok(mut field) = HeaderValue::from_bytes(value.as_bytes()) else {
            return Err(HeaderError::Value(name));
        };
        if value.is_empty() {
            return Err(HeaderError::Empty(name));
        }
        field.set_sensitive(true);
        match name {
            USER_AGENT => self.agent = Some(field),
            COOKIE => self.add_cookies(value)?,
            name => _ = self.fields.append(name, field),
        }
        Ok(())
    }

    /// Adds cookies, `a=b; c=d`.
    ///
    /// # Errors
    /// There is none, one has no name or no `=`, or a character cannot be sent.
    pub fn add_cookies(&mut self, text: &str) -> Result<(), HeaderError> {
        if HeaderValue::from_bytes(text.as_bytes()).is_err() {
            return Err(HeaderError::Value(COOKIE));
        }
        let pairs = text.split(';').map(|pair| pair.trim_matches([' ', '\t']));
        let mut any = false;
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(HeaderError::Cookie)?;
            let name = name.trim_end_matches([' ', '\t']);
            if name.is_empty() {
                return Err(HeaderError::Cookie);
            }
            any = true;
            let value = Zeroizing::new(value.trim_start_matches([' ', '\t']).to_owned());
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value));
        }
        if any { Ok(()) } else { Err(HeaderError::Cookie) }
    }

    /// Adds the fields and cookies of `lower` that these do not name.
    #[must_use]
    pub fn or(mut self, lower: &Self) -> Self {
        let mut fields = lower.fields.clone();
        self.fields.keys().for_each(|name| _ = fields.remove(name));
        fields.extend(std::mem::take(&mut self.fields));
        let others = lower
            .cookies
            .iter()
            .filter(|(name, _)| self.cookies.iter().all(|(own, _)| own != name));
        let cookies = others.cloned().collect::<Vec<_>>().into_iter().chain(self.cookies).collect();
        Self { fields, agent: self.agent.or_else(|| lower.agent.clone()), cookies }
    }

    /// The fields, for the servers that the command names.
    pub const fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    /// `User-Agent`, for all servers.
    pub const fn agent(&self) -> Option<&HeaderValue> {
        self.agent.as_ref()
    }

    /// Names and values of cookies, for the servers that the command names.
    pub fn cookies(&self) -> &[(String, Zeroizing<String>)] {
        &self.cookies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Result<Headers, HeaderError> {
        let mut headers = Headers::default();
        lines.iter().try_for_each(|line| headers.add_line(line))?;
        Ok(headers)
    }

    #[test]
    fn a_field_has_a_name_and_a_value() {
        let headers = of(&["X-Token:  geheim ", "X-Token: second", "Referer: http://a/"]).unwrap();
        let all: Vec<_> = headers.fields().get_all("x-token").iter().collect();
        assert_eq!(all, ["geheim", "second"]);
        assert_eq!(headers.fields().get("referer").unwrap(), "http://a/");
        assert!(!format!("{headers:?}").contains("geheim"));
        assert_eq!(of(&["geheim"]).unwrap_err(), HeaderError::NoColon);
        for line in ["gehe im: x", ": x", "X-Token : x", "a\r\nb: x"] {
            assert_eq!(of(&[line]).unwrap_err(), HeaderError::Name, "{line}");
        }
        assert_eq!(of(&["Accept:"]).unwrap_err(), HeaderError::Empty("accept".parse().unwrap()));
    }

    #[test]
    fn a_value_cannot_add_another_field() {
        for value in ["geheim\r\nHost: evil", "geheim\n", "\rgeheim", "geheim\0"] {
            let error = of(&[&format!("X-Token: {value}")]).unwrap_err();
            assert_eq!(error, HeaderError::Value("x-token".parse().unwrap()));
            assert!(!error.to_string().contains("geheim"));
            assert!(Headers::default().add_cookies(&format!("a={value}")).is_err());
        }
    }

    #[test]
    fn fields_that_haul_sets_itself_are_refused_with_a_reason() {
        for name in ["Host", "Content-Length", "TRANSFER-ENCODING", "Range", "If", "Connection"] {
            let error = of(&[&format!("{name}: 1")]).unwrap_err();
            let HeaderError::Own(refused, why) = error else { panic!("{name}: {error}") };
            assert!(refused.as_str().eq_ignore_ascii_case(name) && !why.is_empty());
        }
    }

    #[test]
    fn agent_and_cookies_are_separate_from_other_fields() {
        let headers =
            of(&["User-Agent: one", "user-agent: two", "Cookie: a=b; c=d=e", "cookie: a=f"]);
        let headers = headers.unwrap();
        assert!(headers.fields().is_empty());
        assert_eq!(headers.agent().unwrap(), "two");
        let pairs: Vec<_> = headers.cookies().iter().map(|(n, v)| (&n[..], &v[..])).collect();
        assert_eq!(pairs, [("c", "d=e"), ("a", "f")]);
        for text in ["", " ; ", "geheim", "a=b; geheim", "=geheim"] {
            let error = Headers::default().add_cookies(text).unwrap_err();
            assert_eq!(error, HeaderError::Cookie, "{text}");
            assert!(!error.to_string().contains("geheim"));
        }
    }

    #[test]
    fn the_command_line_takes_precedence_over_the_configuration() {
        let lower = of(&["A: 1", "A: 2", "B: 3", "User-Agent: x", "Cookie: a=1; b=2"]).unwrap();
        let both = of(&["a: 4", "Cookie: b=3"]).unwrap().or(&lower);
        let all: Vec<_> = both.fields().get_all("a").iter().collect();
        assert_eq!(all, ["4"]);
        assert_eq!(both.fields().get("b").unwrap(), "3");
        assert_eq!(both.agent().unwrap(), "x");
        let pairs: Vec<_> = both.cookies().iter().map(|(n, v)| (&n[..], &v[..])).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "3")]);
    }
}
