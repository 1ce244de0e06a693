//! Free space.

use haul_storage::{Space, Volume};

use super::super::messages;
use super::{TEXT_MAX, WireError};

/// The host of a volume is sent as it is: empty for the server's machine. The client puts the peer's key before it.
impl From<&Space> for messages::Space {
    fn from(space: &Space) -> Self {
        let volume =
            |volume: &Volume| messages::Volume { host: volume.host.clone(), number: volume.number };
        Self {
            free: space.free,
            most: space.most,
            block: space.block,
            volume: space.volume.as_ref().map(volume),
            compact: space.compact,
            shares: space.shares,
        }
    }
}

impl TryFrom<messages::Space> for Space {
    type Error = WireError;

    fn try_from(space: messages::Space) -> Result<Self, WireError> {
        let volume = |volume: messages::Volume| {
            if volume.host.len() > TEXT_MAX {
                return Err(WireError::LongField("host"));
            }
            Ok(Volume { host: volume.host, number: volume.number })
        };
        Ok(Self {
            free: space.free,
            most: space.most,
            block: space.block,
            volume: space.volume.map(volume).transpose()?,
            compact: space.compact,
            shares: space.shares,
        })
    }
}
