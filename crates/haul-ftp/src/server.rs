//! What is known of a server once somebody is logged in.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use haul_net::{ReceiveBudget, RttGauge, RttSample};

use crate::learnt::{Learnt, Lesson};
use crate::wire::{Features, HashCommand};

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
    /// What it turned out not to do.
    pub(crate) learnt: Arc<Learnt>,
    /// Where one is after logging in; absolute.
    pub(crate) home: Vec<u8>,
    /// A rename replaces what is there, because rename(2) does.
    rename_replaces: bool,
    /// Does one thing after another, so that a command may be sent while a transfer is being broken
    /// off: the answer to it comes after the last word on the transfer.
    pub(crate) in_turn: bool,
    /// Names are bytes to it; otherwise they are UTF-8, and what is not may become another name.
    pub(crate) any_names: bool,
    /// It was seen to end TLS as it should.
    pub(crate) ends_tls: AtomicBool,
    set_time: Option<SetTime>,
    /// What comes over all data connections, once the path is known.
    receive_budget: OnceLock<Option<Arc<ReceiveBudget>>>,
    /// The data connections over which files go at present.
    pub(crate) in_use: InUse,
}

/// Data connections in use, which tell how long packets take while the control connections are silent.
#[derive(Debug, Default)]
pub(crate) struct InUse(Mutex<Vec<Weak<RttGauge>>>);

impl InUse {
    pub(crate) fn add(&self, gauge: Option<&Arc<RttGauge>>) {
        let mut gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.retain(|gauge| gauge.strong_count() > 0);
        gauges.extend(gauge.map(Arc::downgrade));
    }

    /// Of each connection, as far as it has carried anything.
    pub(crate) fn round_trips(&self) -> Vec<RttSample> {
        let mut gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.retain(|gauge| gauge.strong_count() > 0);
        gauges.iter().filter_map(|gauge| gauge.upgrade()?.round_trips()).collect()
    }
}

/// These have a process for each session. pyftpdlib forgets a transfer's last word when the next one is
/// prepared first.
fn is_in_turn(greeting: &str) -> bool {
    ["vsFTPd", "ProFTPD", "Pure-FTPd"].iter().any(|name| greeting.contains(name))
}

/// Whether a server is known to take several commands at once.
pub(crate) fn pipelines(greeting: &str) -> bool {
    is_in_turn(greeting) || ["FileZilla", "pyftpdlib"].iter().any(|name| greeting.contains(name))
}

impl Server {
    pub(crate) fn new(
        features: Features,
        greeting: &str,
        system: &str,
        home: Vec<u8>,
        learnt: Arc<Learnt>,
    ) -> Self {
        let is_vsftpd = greeting.contains("vsFTPd");
        let set_time = match (features.mfmt, is_vsftpd && features.mdtm) {
            (true, _) => Some(SetTime::Mfmt),
            (false, true) => Some(SetTime::Mdtm),
            (false, false) => None,
        };
        // FileZilla says "UNIX emulated by FileZilla".
        let system = system.to_ascii_lowercase();
        let rename_replaces = system.contains("unix") && !system.contains("emulated");
        let in_turn = is_in_turn(greeting);
        if in_turn {
            // Those that refuse SIZE of a file that is there say so.
            learnt.learn(Lesson::SizeWorks);
        }
        Self {
            features,
            learnt,
            home,
            rename_replaces,
            in_turn,
            any_names: is_vsftpd || !features.utf8,
            ends_tls: AtomicBool::new(false),
            set_time,
            receive_budget: OnceLock::new(),
            in_use: InUse::default(),
        }
    }

    /// What comes over all data connections, if that matters where a round trip takes so long.
    pub(crate) fn receive_budget(&self, rtt: Duration) -> Option<&Arc<ReceiveBudget>> {
        self.receive_budget.get_or_init(|| ReceiveBudget::over(rtt)).as_ref()
    }

    /// How a file gets its time, if it can be set at all.
    pub(crate) fn set_time(&self) -> Option<SetTime> {
        self.set_time.filter(|_| !self.learnt.knows(Lesson::NoTimes))
    }

    /// Remembers that it sets no times although it seemed so.
    pub(crate) fn refuses_times(&self) {
        self.learnt.learn(Lesson::NoTimes);
    }

    /// Whether to list by `MLSD`.
    pub(crate) fn mlsd(&self) -> bool {
        self.features.mlst && !self.learnt.knows(Lesson::NoMlsd)
    }

    /// Whether to look by `MLST`.
    pub(crate) fn mlst(&self) -> bool {
        self.features.mlst && !self.learnt.knows(Lesson::NoMlst)
    }

    /// Whether to ask for lengths by `SIZE`. Old servers know it and do not announce it.
    pub(crate) fn size(&self) -> bool {
        !self.learnt.knows(Lesson::NoSize)
    }

    /// Whether to ask for the times of all files of a directory by `MDTM`.
    pub(crate) fn mdtm(&self) -> bool {
        self.features.mdtm && !self.learnt.knows(Lesson::NoMdtm)
    }

    /// How to ask for SHA-256 digests, if it makes them.
    pub(crate) fn hash(&self) -> Option<HashCommand> {
        self.features.hash.filter(|_| !self.learnt.knows(Lesson::NoHash))
    }

    /// Whether a transfer can begin in the middle.
    pub(crate) fn rest(&self) -> bool {
        self.features.rest && !self.learnt.knows(Lesson::NoRest)
    }

    /// Whether to ask for ports by `EPSV`.
    pub(crate) fn epsv(&self) -> bool {
        self.features.epsv && !self.learnt.knows(Lesson::NoEpsv)
    }

    /// Whether a rename replaces what has the name.
    pub(crate) fn rename_replaces(&self) -> bool {
        self.rename_replaces && !self.learnt.knows(Lesson::RenameKeeps)
    }
}
