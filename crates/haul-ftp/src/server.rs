//! What is known of a server once somebody is logged in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haul_net::Inflow;

use crate::wire::Features;

/// How a file gets its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetTime {
    /// `MFMT time path`.
    Mfmt,
    /// `MDTM time path`, which is vsftpd's way and announced by nothing.
    Mdtm,
}

/// What is known of a server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) features: Features,
    /// Where one is after logging in; absolute.
    pub(crate) home: Vec<u8>,
    /// A rename replaces what is there, because rename(2) does.
    pub(crate) rename_replaces: bool,
    /// Does one thing after another, so that a command may be sent while a transfer is being broken
    /// off: the answer to it comes after the last word on the transfer.
    pub(crate) in_turn: bool,
    /// Names are bytes to it; otherwise they are UTF-8, and what is not may become another name.
    pub(crate) any_names: bool,
    /// It was seen to end TLS as it should.
    pub(crate) ends_tls: AtomicBool,
    set_time: Option<SetTime>,
    times_refused: AtomicBool,
    /// What comes over all data connections, once the path is known.
    inflow: OnceLock<Option<Arc<Inflow>>>,
}

impl Server {
    pub(crate) fn new(features: Features, greeting: &str, system: &str, home: Vec<u8>) -> Self {
        let is_vsftpd = greeting.contains("vsFTPd");
        let set_time = match (features.mfmt, is_vsftpd && features.mdtm) {
            (true, _) => Some(SetTime::Mfmt),
            (false, true) => Some(SetTime::Mdtm),
            (false, false) => None,
        };
        // FileZilla says "UNIX emulated by FileZilla".
        let system = system.to_ascii_lowercase();
        let rename_replaces = system.contains("unix") && !system.contains("emulated");
        // These have a process for each session. pyftpdlib forgets a transfer's last word when the next
        // one is prepared first.
        let in_turn = ["vsFTPd", "ProFTPD", "Pure-FTPd"].iter().any(|name| greeting.contains(name));
        Self {
            features,
            home,
            rename_replaces,
            in_turn,
            any_names: is_vsftpd || !features.utf8,
            ends_tls: AtomicBool::new(false),
            set_time,
            times_refused: AtomicBool::new(false),
            inflow: OnceLock::new(),
        }
    }

    /// What comes over all data connections, if that matters where a round trip takes so long.
    pub(crate) fn inflow(&self, round_trip: Duration) -> Option<&Arc<Inflow>> {
        self.inflow.get_or_init(|| Inflow::over(round_trip)).as_ref()
    }

    /// How a file gets its time, if it can be set at all.
    pub(crate) fn set_time(&self) -> Option<SetTime> {
        self.set_time.filter(|_| !self.times_refused.load(Ordering::Relaxed))
    }

    /// Remembers that it sets no times although it seemed so.
    pub(crate) fn refuses_times(&self) {
        self.times_refused.store(true, Ordering::Relaxed);
    }
}
