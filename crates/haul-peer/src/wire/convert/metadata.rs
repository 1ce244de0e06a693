//! Metadata that can be set, and extended attributes.

use bytes::Bytes;
use haul_storage::{Metadata, Xattrs};

use super::super::messages;
use super::entry::{owner_from, owner_to, time_from};
use super::{WireError, XATTR_MAX, XATTRS_MAX, mode};

/// Extended attributes are sent however long they are: if the message exceeds its limit,
/// [`message_frame`](crate::wire::message_frame) fails.
impl From<&Metadata> for messages::Metadata {
    fn from(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode,
            modified: metadata.modified.map(Into::into),
            owner: owner_to(metadata.owner),
            xattrs: metadata.xattrs.as_ref().map(xattrs_to),
        }
    }
}

impl TryFrom<messages::Metadata> for Metadata {
    type Error = WireError;

    fn try_from(metadata: messages::Metadata) -> Result<Self, WireError> {
        Ok(Self {
            mode: mode(metadata.mode)?,
            modified: time_from(metadata.modified)?,
            owner: owner_from(metadata.owner),
            xattrs: metadata.xattrs.map(xattrs_from).transpose()?,
        })
    }
}

fn xattrs_to(xattrs: &Xattrs) -> messages::Xattrs {
    let xattr = |(name, value): &(Vec<u8>, Vec<u8>)| messages::Xattr {
        name: Bytes::copy_from_slice(name),
        value: Bytes::copy_from_slice(value),
    };
    messages::Xattrs { xattrs: xattrs.iter().map(xattr).collect() }
}

fn xattrs_from(xattrs: messages::Xattrs) -> Result<Xattrs, WireError> {
    let mut total = 0;
    let xattr = |xattr: messages::Xattr| {
        let (name, value) = (xattr.name, xattr.value);
        if name.is_empty() || name.contains(&0) {
            return Err(WireError::Invalid("name of an attribute"));
        }
        total += name.len() + value.len();
        if name.len() > XATTR_MAX || value.len() > XATTR_MAX || total > XATTRS_MAX {
            return Err(WireError::LongField("attribute"));
        }
        Ok((name.to_vec(), value.to_vec()))
    };
    xattrs.xattrs.into_iter().map(xattr).collect()
}
