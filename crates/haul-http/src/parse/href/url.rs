//! An absolute URL, and relative references to it (RFC 3986, section 5.2) for redirects.

use std::fmt;

use super::encoding::encode_target;
use super::error::{HrefError, LONGEST};
use super::origin::{Origin, WebScheme};

/// An absolute `http` or `https` URL without user and fragment.
///
/// It is displayed without its query, which is a secret in a signed URL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// The server.
    pub origin: Origin,
    /// Path and query as in a request line: printable ASCII without spaces, beginning with `/`.
    target: String,
}

impl Url {
    /// The URL of `path` (decoded bytes, absolute) on `origin`, with `query` as written, if any: only what a request
    /// line cannot contain is encoded, and a fragment is left out.
    ///
    /// # Errors
    /// If `query` has control characters, or path and query are too long.
    pub fn new(origin: Origin, path: &[u8], query: Option<&str>) -> Result<Self, HrefError> {
        let path = super::encode_path(path);
        let target = match query {
            Some(query) => format!("{path}?{}", query.split('#').next().unwrap_or_default()),
            None => path,
        };
        Self::with_target(origin, &target)
    }

    /// The URL of a `path` that is already percent-encoded: its escapes stay as they are, while `?` and `#`, and what a
    /// request line cannot contain, are encoded.
    ///
    /// # Errors
    /// If `path` or `query` has control characters, or both are too long.
    pub fn as_written(origin: Origin, path: &str, query: Option<&str>) -> Result<Self, HrefError> {
        let path = path.replace('?', "%3F").replace('#', "%23");
        match query {
            Some(query) => Self::with_target(origin, &format!("{path}?{query}")),
            None => Self::with_target(origin, &path),
        }
    }

    /// Parses an absolute URL.
    ///
    /// # Errors
    /// If it is malformed or too long, has credentials, or another scheme than HTTP and HTTPS.
    pub fn parse(text: &str) -> Result<Self, HrefError> {
        let (scheme, rest) = split_scheme(text.as_bytes());
        let scheme = scheme.and_then(WebScheme::parse).ok_or(HrefError::Scheme)?;
        let rest = &text[text.len() - rest.len()..];
        let rest = rest.strip_prefix("//").ok_or(HrefError::Malformed)?;
        Self::with_authority(scheme, rest)
    }

    /// Resolves `reference` relative to this URL, as for the `Location` of a redirect. Its fragment is
    /// left out; `..` goes up as in any browser, but not above the root.
    ///
    /// # Errors
    /// Those of [`Url::parse`].
    pub fn join(&self, reference: &str) -> Result<Self, HrefError> {
        let reference = reference.trim_matches([' ', '\t']);
        check(reference)?;
        if split_scheme(reference.as_bytes()).0.is_some() {
            return Self::parse(reference);
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::with_authority(self.origin.scheme(), rest);
        }
        let reference = reference.split('#').next().unwrap_or_default();
        let target = match reference.as_bytes().first() {
            None => self.target.clone(),
            Some(b'/') => reference.to_owned(),
            Some(b'?') => format!("{}{reference}", self.path()),
            // Section 5.2.3: everything up to the last slash stays.
            Some(_) => {
                let end = self.path().rfind('/').map_or(0, |slash| slash + 1);
                format!("{}{reference}", &self.path()[..end])
            }
        };
        Self::with_target(self.origin.clone(), &target)
    }

    /// The path, encoded; it begins with `/`.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The query as written, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The same path and query on another server.
    #[must_use]
    pub fn on(&self, origin: Origin) -> Self {
        Self { origin, target: self.target.clone() }
    }

    /// Whether its path is that of `directory` without the slash at the end, on any server.
    pub fn is_without_slash(&self, directory: &Self) -> bool {
        let path = |url: &Self| super::decode(url.path().as_bytes());
        let slashed = path(self).map(|path| [&path[..], b"/"].concat());
        slashed.is_some() && slashed == path(directory)
    }

    /// Another path on the same server, without a query.
    #[must_use]
    pub fn with_path(&self, path: &str) -> Self {
        Self { origin: self.origin.clone(), target: encode_target(path) }
    }

    /// The same path with a slash at the end, without a query.
    #[must_use]
    pub fn as_directory(&self) -> Self {
        let path = self.path();
        let slash = if path.ends_with('/') { "" } else { "/" };
        self.with_path(&format!("{path}{slash}"))
    }

    /// Path and query, for a request line.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The whole URL with its query, for a request to a proxy or a header such as `Destination`. Not for display.
    pub fn absolute(&self) -> String {
        format!("{}{}", self.origin, self.target)
    }

    fn with_authority(scheme: WebScheme, rest: &str) -> Result<Self, HrefError> {
        check(rest)?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let origin = Origin::parse(scheme, &rest[..end])?;
        Self::with_target(origin, &rest[end..])
    }

    fn with_target(origin: Origin, target: &str) -> Result<Self, HrefError> {
        check(target)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let mut target = encode_target(&without_dots(path));
        if let Some(query) = query {
            target.push('?');
            target.push_str(&encode_target(query));
        }
        Ok(Self { origin, target })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query().is_some() { "?…" } else { "" };
        write!(f, "{}{}{query}", self.origin, self.path())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// The scheme, if there is one, and the text after its colon.
pub(super) fn split_scheme(text: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let end = text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte)));
    match end {
        Some(end) if text[end] == b':' && text[0].is_ascii_alphabetic() => {
            (Some(&text[..end]), &text[end + 1..])
        }
        _ => (None, text),
    }
}

/// Checks that a text is not too long, and cannot inject a header into a request.
fn check(text: &str) -> Result<(), HrefError> {
    if text.len() > LONGEST {
        return Err(HrefError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(HrefError::Malformed);
    }
    Ok(())
}

/// Removes `.` and `..` (section 5.2.4), encoded or not, as a server or proxy would. The result begins
/// with `/`.
fn without_dots(path: &str) -> String {
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let mut components: Vec<&str> = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let dots = part.to_ascii_lowercase().replace("%2e", ".");
        match &dots[..] {
            "." | ".." => {
                if dots == ".." {
                    components.pop();
                }
                // A path that ends with dots is a directory.
                if at + 1 == parts.len() {
                    components.push("");
                }
            }
            _ => components.push(part),
        }
    }
    format!("/{}", components.join("/"))
}
