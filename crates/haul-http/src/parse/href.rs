//! Resolves links of a listing to file names.
//!
//! A listing names its entries by links: absolute URLs (IIS), absolute paths (most) or names (HTML indexes),
//! with any character percent-encoded or not. [`resolve`] compares a link with the requested directory and
//! returns a name of one component, or an error. It compares decoded bytes, component by component:
//! `/A%2e%2E/`, `/%41/` and `/a b/` are compared by their meaning. Links that differ only in their encoding
//! give the same name, so that the caller can detect duplicates.
//!
//! A link that would leave the directory is an error and never corrected.

mod encoding;
mod error;
mod origin;
mod url;

pub use encoding::{decode, decode_name, encode_path};
pub use error::{HrefError, LONGEST};
pub use origin::{Origin, WebScheme};
pub use url::Url;

/// The requested directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The server.
    pub origin: Origin,
    /// Components of its path, decoded.
    components: Vec<Vec<u8>>,
}

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// The directory itself.
    This,
    /// An entry of the directory.
    Child {
        /// Its name: one component, without `/` and NUL, and neither `.` nor `..`.
        name: Vec<u8>,
        /// Whether the link ends with a slash, as those of directories do.
        slash: bool,
    },
}

impl Base {
    /// The directory at `path`, which is decoded bytes with `/` between components.
    pub fn new(origin: Origin, path: &[u8]) -> Self {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        Self { origin, components: parts.map(<[u8]>::to_vec).collect() }
    }

    /// The directory at `url`; its query is ignored.
    ///
    /// # Errors
    /// If its path contains `..`, NUL or a malformed escape.
    pub fn from_url(url: &Url) -> Result<Self, HrefError> {
        let (components, _) = components(url.path().as_bytes())?;
        Ok(Self { origin: url.origin.clone(), components })
    }

    /// Components of its path, decoded.
    pub fn components(&self) -> &[Vec<u8>] {
        &self.components
    }
}

/// The target of `href`, found in the listing of `base`.
///
/// # Errors
/// If it is malformed, has a query or fragment, or leads to another server, out of the directory, or below one
/// of its entries.
pub fn resolve(base: &Base, href: &[u8]) -> Result<Target, HrefError> {
    resolve_on(Some(&base.origin), base, href)
}

/// Like [`resolve`], but ignores the server in the link: a WebDAV server behind a proxy writes its internal
/// name there. This is harmless, since only a file name is taken from the link (cadaver, davfs2 and rclone
/// do the same).
///
/// # Errors
/// As [`resolve`], but a link to another server is not an error.
pub fn resolve_path(base: &Base, href: &[u8]) -> Result<Target, HrefError> {
    resolve_on(None, base, href)
}

fn resolve_on(origin: Option<&Origin>, base: &Base, href: &[u8]) -> Result<Target, HrefError> {
    if href.is_empty() {
        return Err(HrefError::Empty);
    }
    if href.len() > LONGEST {
        return Err(HrefError::TooLong);
    }
    if href.iter().any(u8::is_ascii_control) {
        return Err(HrefError::Malformed);
    }
    if href.iter().any(|byte| matches!(byte, b'?' | b'#')) {
        return Err(HrefError::Query);
    }
    let (scheme, rest) = url::split_scheme(href);
    let scheme = match scheme {
        Some(scheme) => WebScheme::parse(scheme).ok_or(HrefError::Scheme)?,
        None => base.origin.scheme(),
    };
    let path = if let Some(rest) = rest.strip_prefix(b"//") {
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let authority = std::str::from_utf8(&rest[..end]).map_err(|_| HrefError::Malformed)?;
        if let Some(origin) = origin
            && Origin::parse(scheme, authority)? != *origin
        {
            return Err(HrefError::OtherServer);
        }
        &rest[end..]
    } else if rest.len() < href.len() {
        // `http:name`, which RFC 3986, section 5.2.2, allows only for backward compatibility.
        return Err(HrefError::Malformed);
    } else {
        rest
    };
    let (parts, slash) = components(path)?;
    // After an authority, an empty path is the root.
    let is_absolute = path.is_empty() || path.starts_with(b"/");
    let above = if is_absolute { base.components.len() } else { 0 };
    if !parts.starts_with(&base.components[..above]) {
        let separated = parts.iter().any(|name| name.contains(&b'/'));
        return Err(if separated { HrefError::Separator } else { HrefError::Outside });
    }
    let mut names = parts.into_iter().skip(above);
    match (names.next(), names.next()) {
        (None, _) => Ok(Target::This),
        (Some(name), None) if name.contains(&b'/') => Err(HrefError::Separator),
        (Some(name), None) => Ok(Target::Child { name, slash }),
        (Some(_), Some(_)) => Err(HrefError::Deeper),
    }
}

/// The decoded components of a path, and whether it ends with a slash or `.`. Empty ones and `.` are left out,
/// `..` is an error. A component may contain an encoded `/`, because the requested directory may; a
/// file name may not.
fn components(path: &[u8]) -> Result<(Vec<Vec<u8>>, bool), HrefError> {
    let mut components = Vec::new();
    let mut slash = true;
    for part in path.split(|byte| *byte == b'/') {
        let name = decode(part).ok_or(HrefError::Malformed)?;
        slash = matches!(&name[..], b"" | b".");
        match &name[..] {
            b"" | b"." => continue,
            b".." => return Err(HrefError::DotDot),
            name if name.contains(&0) => return Err(HrefError::Nul),
            _ => components.push(name),
        }
    }
    Ok((components, slash))
}

#[cfg(test)]
mod tests;
