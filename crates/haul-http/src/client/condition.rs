//! The condition of a request that replaces a file: the entity tag (RFC 9110, section 8.8.3) of the only version that
//! it may replace.
//!
//! ```text
//! version the caller expects ── compared with a PROPFIND ──► its strong tag ─┬─► PUT:  If-Match: "tag"
//!                                   │ another: `Changed`                     └─► MOVE: If: <destination> (["tag"])
//! ```
//!
//! `If` names the destination of a MOVE (RFC 4918, section 10.4), since `If-Match` would be about its source.
//! Conditions are sent only to servers that are known to evaluate them
//! ([`Quirks::conditional`](super::quirks::Quirks::conditional)): the WebDAV library of Go refuses every `If` with a
//! tag. Apache ignores an `If` whose path it would encode differently.

use haul_storage::{CommitOptions, Entry, Error, ErrorKind, Identity, RelPath, Result};
use http::header::IF_MATCH;
use http::{HeaderName, HeaderValue};

use super::dav;
use super::inner::Inner;
use super::request::Request;
use crate::parse::Url;

/// Conditions of WebDAV (RFC 4918, section 10.4).
pub const IF: HeaderName = HeaderName::from_static("if");

/// The strong entity tag of the only version that a request may replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// With its quotes.
    tag: String,
}

/// The version that a commit replaces.
#[derive(Debug)]
pub struct Replaced {
    /// The file.
    pub entry: Entry,
    /// The condition for the request that replaces it; `None` if the server reports no strong tag.
    pub condition: Option<Condition>,
}

impl Condition {
    /// From a tag as the server reports it; `None` if it is weak. A tag that some servers would misread in a header
    /// field is not used either.
    fn new(tag: &str) -> Option<Self> {
        let inside = tag.strip_prefix('"')?.strip_suffix('"')?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !br#""()<>[],\"#.contains(&byte);
        inside.bytes().all(is_plain).then(|| Self { tag: tag.to_owned() })
    }

    /// A PUT that replaces only this version.
    ///
    /// # Errors
    /// As for [`Condition::on_move`].
    pub fn on_put(&self, request: Request) -> Result<Request> {
        let value = value(&request, self.tag.clone())?;
        Ok(request.with(IF_MATCH, value))
    }

    /// A MOVE that replaces only this version at its destination.
    ///
    /// # Errors
    /// `InvalidInput` if it cannot be sent in a header field.
    pub fn on_move(&self, request: Request, destination: &Url) -> Result<Request> {
        let value = value(&request, format!("<{}> ([{}])", destination.absolute(), self.tag))?;
        Ok(request.with(IF, value))
    }
}

fn value(request: &Request, text: String) -> Result<HeaderValue> {
    HeaderValue::try_from(text).map_err(|_| {
        let error = Error::new(ErrorKind::InvalidInput, request.operation).at(&request.url);
        error.because("its URL cannot be sent in a header")
    })
}

impl Inner {
    /// The version at `path` that a commit replaces, if the commit may replace only the `expected` version and the
    /// server evaluates conditions.
    ///
    /// # Errors
    /// That of [`CommitOptions::check`] if there is another version, and those of the request.
    pub(super) async fn replaced(
        &self,
        path: &RelPath,
        expected: Option<&Identity>,
    ) -> Result<Option<Replaced>> {
        let compares = self.capabilities.conditional_commits;
        let Some(expected) = expected.filter(|_| compares) else { return Ok(None) };
        match self.look_with_tag(path).await? {
            Some((entry, tag)) if is_version(&entry, expected) => {
                let condition = tag.as_deref().and_then(Condition::new);
                Ok(Some(Replaced { entry, condition }))
            }
            _ => Err(self.another_version(path)),
        }
    }

    /// After a refusal with 412: checks that the version at `path` is still that of the condition. If it is, the server
    /// compares other tags than it reports, and the condition is of no use.
    ///
    /// # Errors
    /// That of [`CommitOptions::check`] if there is another version, and those of the request.
    pub(super) async fn still_has(&self, path: &RelPath, condition: &Condition) -> Result<()> {
        match self.look_with_tag(path).await? {
            Some((_, Some(tag))) if tag == condition.tag => Ok(()),
            _ => Err(self.another_version(path)),
        }
    }

    /// The entry at `path`, and its entity tag.
    async fn look_with_tag(&self, path: &RelPath) -> Result<Option<(Entry, Option<String>)>> {
        let seen = dav::look_with_tag(self.exchange(), self.url(path), "commit").await?;
        let Some(seen) = seen else { return Ok(None) };
        Ok(Some((self.described(path, &seen.resource).await?, seen.resource.etag)))
    }

    fn another_version(&self, path: &RelPath) -> Error {
        CommitOptions::refusal().at(self.location.display(path))
    }
}

/// Whether an entry is this version, as far as the properties of a listing show.
fn is_version(entry: &Entry, version: &Identity) -> bool {
    entry.is_file() && (entry.size, entry.modified) == (version.size, version.modified)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn only_strong_tags_become_conditions() {
        for tag in ["\"\"", "\"1a-2:b\"", "\"65f=\""] {
            assert_eq!(Condition::new(tag), Some(Condition { tag: tag.to_owned() }), "{tag}");
        }
        for tag in ["W/\"1\"", "1", "\"", "", "\"a b\"", "\"a\"b\"", "\"a]b\"", "\"a,b\"", "\"é\""]
        {
            assert_eq!(Condition::new(tag), None, "{tag}");
        }
    }

    #[test]
    fn a_move_names_its_destination_in_the_condition() {
        let url = |path: &str| Url::parse(&format!("http://h/{path}")).unwrap();
        let condition = Condition::new("\"1\"").unwrap();
        let request = Request::new(Method::PUT, url("part"), "commit");
        let moved = condition.on_move(request.clone(), &url("a%20b")).unwrap();
        assert_eq!(moved.headers[IF], "<http://h/a%20b> ([\"1\"])");
        let put = condition.on_put(request).unwrap();
        assert_eq!(put.headers[IF_MATCH], "\"1\"");
        assert!(!put.is_repeatable());
    }
}
