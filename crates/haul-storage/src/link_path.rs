//! The network path that the lanes of a link take, where a backend knows several.

use std::fmt;
use std::net::SocketAddr;

/// How a lane was established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathKind {
    /// This machine has connected to the other one.
    Direct,
    /// The other machine has connected to this one.
    Reverse,
    /// Both machines have connected to each other at once.
    SimultaneousOpen,
    /// Through a bridge.
    Bridge,
}

/// The path of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkPath {
    /// Its kind.
    pub kind: PathKind,
    /// The address of the other machine, or of the bridge.
    pub address: SocketAddr,
}

impl PathKind {
    /// Its name: `direct`, `reverse`, `simultaneous open` or `bridge`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Reverse => "reverse",
            Self::SimultaneousOpen => "simultaneous open",
            Self::Bridge => "bridge",
        }
    }
}

/// `192.0.2.7:4180 (direct)`
impl fmt::Display for LinkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_with_its_kind() {
        let address = "192.0.2.7:4180".parse().unwrap();
        let shown = |kind| LinkPath { kind, address }.to_string();
        assert_eq!(shown(PathKind::Bridge), "192.0.2.7:4180 (bridge)");
        assert_eq!(shown(PathKind::SimultaneousOpen), "192.0.2.7:4180 (simultaneous open)");
    }
}
