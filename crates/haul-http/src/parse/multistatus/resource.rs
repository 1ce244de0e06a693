//! One resource of a multistatus.

use haul_storage::Timestamp;

/// One `response` element: an entry of the directory, or the directory itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Its URL or path as sent, with XML entities decoded. See
    /// [`resolve_path`](crate::parse::href::resolve_path).
    pub href: String,
    /// Whether it is a directory.
    pub collection: bool,
    /// Length in bytes, if given and it is a file.
    pub size: Option<u64>,
    /// Last modification; all known servers send whole seconds.
    pub modified: Option<Timestamp>,
    /// ETag, with its quotes and `W/` as sent.
    pub etag: Option<String>,
    /// Bytes used below it (RFC 4331).
    pub quota_used: Option<u64>,
    /// Free bytes (RFC 4331). Nextcloud sends negative numbers for "unknown" and "unlimited", which are
    /// `None` here.
    pub quota_available: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Status of the resource itself, if the response has one; then it has no properties.
    pub status: Option<u16>,
    /// Status of the first group of properties that is not 200: in a response to PROPPATCH the reason why
    /// something was not set; to PROPFIND mostly 404, for missing properties.
    pub property_status: Option<u16>,
    /// Whether it exists: a group of properties has status 200, or names missing ones. For a resource that
    /// does not exist some servers send 404 with an empty group.
    pub described: bool,
    /// `oc:permissions` of ownCloud and Nextcloud, such as `RGDNVW`.
    pub permissions: Option<String>,
    /// `oc:checksums` of ownCloud and Nextcloud, as words: `SHA1:da39…`, `MD5:d41d…`.
    pub checksums: Vec<String>,
}

impl Resource {
    /// The status of a resource that cannot be described: its own, or 404 or 410 of an empty group of
    /// properties.
    pub fn failure(&self) -> Option<u16> {
        match self.status {
            Some(status) => (!(200..300).contains(&status)).then_some(status),
            None if self.described => None,
            None => self.property_status.filter(|status| matches!(status, 404 | 410)),
        }
    }
}
