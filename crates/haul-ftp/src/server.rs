//! What is known of a server once somebody is logged in.

use std::sync::atomic::{AtomicBool, Ordering};

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
    set_time: Option<SetTime>,
    times_refused: AtomicBool,
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
        let times_refused = AtomicBool::new(false);
        Self { features, home, rename_replaces, set_time, times_refused }
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
