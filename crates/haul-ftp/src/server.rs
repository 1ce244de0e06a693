//! Properties of a server, known after the first login.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use haul_net::{ReceiveBudget, RttGauge, RttSample};

use crate::learnt::{Learnt, Lesson};
use crate::wire::{Features, HashCommand};

/// The command that sets the modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetTime {
    /// `MFMT time path`.
    Mfmt,
    /// `MDTM time path`, which vsftpd supports without announcing it.
    Mdtm,
}

/// Properties of a server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) features: Features,
    /// Features that turned out to work or not to work.
    pub(crate) learnt: Arc<Learnt>,
    /// The absolute path of the directory after login.
    pub(crate) home: Vec<u8>,
    /// A rename replaces an existing file, as rename(2) does.
    rename_replaces: bool,
    /// The server processes commands strictly in order. So a command may be sent while a transfer is being aborted: the
    /// reply to it follows the final reply to the transfer.
    pub(crate) processes_in_order: bool,
    /// The server accepts names of arbitrary bytes. Otherwise they are UTF-8, and other names may be altered.
    pub(crate) any_names: bool,
    /// The server has been seen to end TLS properly (`close_notify`).
    pub(crate) ends_tls: AtomicBool,
    set_time: Option<SetTime>,
    /// The receive budget of all downloads, set once the RTT is known: to `None` if that is too short for one.
    receive_budget: OnceLock<Option<Arc<ReceiveBudget>>>,
    /// The data connections that carry files now, for their RTTs.
    pub(crate) in_use: InUse,
}

/// RTT gauges of the data connections in use: they measure the RTT while the control connections are silent.
#[derive(Debug, Default)]
pub(crate) struct InUse(Mutex<Vec<Weak<RttGauge>>>);

impl InUse {
    pub(crate) fn add(&self, gauge: Option<&Arc<RttGauge>>) {
        let mut gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.retain(|gauge| gauge.strong_count() > 0);
        gauges.extend(gauge.map(Arc::downgrade));
    }

    /// An RTT sample of each connection that has carried anything.
    pub(crate) fn rtts(&self) -> Vec<RttSample> {
        let mut gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.retain(|gauge| gauge.strong_count() > 0);
        gauges.iter().filter_map(|gauge| gauge.upgrade()?.sample()).collect()
    }
}

/// Whether a server processes commands strictly in order, as those with a process for each session do. pyftpdlib does
/// not: it omits the final reply to a transfer if a port for the next one is requested before.
fn processes_in_order(greeting: &str) -> bool {
    ["vsFTPd", "ProFTPD", "Pure-FTPd"].iter().any(|name| greeting.contains(name))
}

/// Whether a server is known to accept several commands at once.
pub(crate) fn pipelines(greeting: &str) -> bool {
    processes_in_order(greeting)
        || ["FileZilla", "pyftpdlib"].iter().any(|name| greeting.contains(name))
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
        // FileZilla replies "UNIX emulated by FileZilla".
        let system = system.to_ascii_lowercase();
        let rename_replaces = system.contains("unix") && !system.contains("emulated");
        let processes_in_order = processes_in_order(greeting);
        if processes_in_order {
            // These servers report if SIZE is not allowed; any other refusal means that the file does not exist.
            learnt.learn(Lesson::SizeWorks);
        }
        Self {
            features,
            learnt,
            home,
            rename_replaces,
            processes_in_order,
            any_names: is_vsftpd || !features.utf8,
            ends_tls: AtomicBool::new(false),
            set_time,
            receive_budget: OnceLock::new(),
            in_use: InUse::default(),
        }
    }

    /// The receive budget of all downloads, if the RTT is long enough for one.
    pub(crate) fn receive_budget(&self, rtt: Duration) -> Option<&Arc<ReceiveBudget>> {
        self.receive_budget.get_or_init(|| ReceiveBudget::over(rtt)).as_ref()
    }

    /// The command that sets modification times, if there is one.
    pub(crate) fn set_time(&self) -> Option<SetTime> {
        self.set_time.filter(|_| !self.learnt.knows(Lesson::NoTimes))
    }

    /// Remembers that setting times does not work.
    pub(crate) fn refuses_times(&self) {
        self.learnt.learn(Lesson::NoTimes);
    }

    /// Whether to list by `MLSD`.
    pub(crate) fn mlsd(&self) -> bool {
        self.features.mlst && !self.learnt.knows(Lesson::NoMlsd)
    }

    /// Whether to look up files by `MLST`.
    pub(crate) fn mlst(&self) -> bool {
        self.features.mlst && !self.learnt.knows(Lesson::NoMlst)
    }

    /// Whether to request lengths by `SIZE`. Old servers support it without announcing it.
    pub(crate) fn size(&self) -> bool {
        !self.learnt.knows(Lesson::NoSize)
    }

    /// Whether to request the times of all files in a directory by `MDTM`.
    pub(crate) fn mdtm(&self) -> bool {
        self.features.mdtm && !self.learnt.knows(Lesson::NoMdtm)
    }

    /// The command that requests SHA-256 digests, if the server computes them.
    pub(crate) fn hash(&self) -> Option<HashCommand> {
        self.features.hash.filter(|_| !self.learnt.knows(Lesson::NoHash))
    }

    /// Whether a transfer can begin at an offset (`REST`).
    pub(crate) fn rest(&self) -> bool {
        self.features.rest && !self.learnt.knows(Lesson::NoRest)
    }

    /// Whether to request ports by `EPSV`.
    pub(crate) fn epsv(&self) -> bool {
        self.features.epsv && !self.learnt.knows(Lesson::NoEpsv)
    }

    /// Whether a rename replaces an existing file.
    pub(crate) fn rename_replaces(&self) -> bool {
        self.rename_replaces && !self.learnt.knows(Lesson::RenameDoesNotReplace)
    }
}
