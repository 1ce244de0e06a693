//! What a multistatus says of one thing.

use haul_storage::Timestamp;

/// One `response`: something in the directory, or the directory itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Where, as sent, but for the XML around it. See [`resolve`](crate::parse::href::resolve).
    pub href: String,
    /// Whether it is a directory.
    pub collection: bool,
    /// Length in bytes, if said and a file.
    pub size: Option<u64>,
    /// Last modification, in seconds for all servers that are known.
    pub modified: Option<Timestamp>,
    /// Version, with its quotes and `W/` as sent.
    pub etag: Option<String>,
    /// Bytes used below it (RFC 4331).
    pub quota_used: Option<u64>,
    /// Bytes that could still be written (RFC 4331). Nextcloud says less than 0 for "unknown" and
    /// "unlimited", which is `None` here.
    pub quota_available: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Status of the resource itself, where the answer has one: then it has no properties.
    pub status: Option<u16>,
    /// Status of the first group of properties that is not 200: in a PROPPATCH's answer, why
    /// something was not set. In a PROPFIND's it is mostly 404, for what is not there.
    pub property_status: Option<u16>,
    /// Whether anything is said of it: a group of properties has status 200, or names some that are
    /// not there. Of what does not exist some servers say 404 in an empty group.
    pub described: bool,
    /// `oc:permissions` of ownCloud and Nextcloud, such as `RGDNVW`.
    pub permissions: Option<String>,
    /// `oc:checksums` of ownCloud and Nextcloud, as words: `SHA1:da39…`, `MD5:d41d…`.
    pub checksums: Vec<String>,
}

impl Resource {
    /// The status that says that it cannot be described: its own, or that of groups of properties
    /// without a property in them.
    pub fn failure(&self) -> Option<u16> {
        match self.status {
            Some(status) => (!(200..300).contains(&status)).then_some(status),
            None if self.described => None,
            None => self.property_status.filter(|status| matches!(status, 404 | 410)),
        }
    }
}
