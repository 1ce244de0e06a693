//! The format of a results file: one JSON object per line, with its type in the field `record`.
//!
//! Each benchmark appends one [`Machine`] first. A [`Scenario`] precedes the [`Run`]s that belong to it. Sizes are in
//! bytes, times in seconds, rates in bytes per second, unless a name says otherwise. A line is written as soon as its
//! run has ended, so that an interrupted benchmark keeps its measurements.

use serde::{Deserialize, Serialize};

/// One line of a results file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The machine on which everything that follows was measured.
    Machine(Machine),
    /// The scenario of the runs that follow.
    Scenario(Scenario),
    /// One run of one tool.
    Run(Box<Run>),
}

/// Properties of the machine that affect measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Seconds since 1970 at the start.
    pub started: u64,
    /// The processor's name.
    pub processor: String,
    /// Cores available to the benchmark.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Kernel release.
    pub kernel: String,
    /// TCP congestion control of new sockets.
    pub congestion_control: String,
    /// Largest TCP send buffer, `net.ipv4.tcp_wmem`.
    pub tcp_send_buffer: u64,
    /// Largest TCP receive buffer, `net.ipv4.tcp_rmem`.
    pub tcp_receive_buffer: u64,
    /// How links are emulated: `tun` or `netem`; `none` if no scenario uses a link.
    pub links: String,
    /// Share of the processor that was busy for a second before the first scenario, 0 to 1.
    pub busy: f64,
}

/// What is transferred, and over which link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its full name, such as `sftp/200ms-500mbit/download/one`.
    pub name: String,
    /// One line for a reader, such as "SFTP download of one large file".
    pub title: String,
    /// `local`, `sftp`, `http`, `https`, `dav`, `ftp`, ...
    pub protocol: String,
    /// What is measured.
    pub measure: Measure,
    /// `copy`, `download` or `upload`.
    pub direction: String,
    /// The link; `None` for local copies and over loopback.
    pub link: Option<LinkShape>,
    /// Files of the data set.
    pub files: u64,
    /// Bytes of the data set.
    pub bytes: u64,
    /// File system of the results, such as `ext4` or `tmpfs`; also of the source, unless it is made for each run.
    pub storage: String,
    /// Source and copy fit into memory, so the page cache is measured and not a disk.
    pub in_page_cache: bool,
    /// Counted runs of each tool.
    pub rounds: u32,
}

/// What a scenario measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Whole-process time to move all data.
    Transfer,
    /// Whole-process time to move one byte, that is, the time to connect.
    Connect,
    /// From the start of the process to the first byte of a file on its standard output.
    FirstByte,
    /// A mounted view: first byte and sequential rate of a file.
    Mount,
    /// A mounted view: random reads of an open file, one at a time and 16 at a time.
    MountRandom,
    /// A mounted view: `find` over all files.
    MountFind,
    /// A mounted view: `ls -lR`.
    MountList,
    /// A mounted view: `git status`.
    MountStatus,
    /// A mounted view: writing all files, until they are closed, and until the server has them.
    MountWrite,
}

impl Measure {
    /// Whether the tool mounts a view, in which the benchmark then works.
    pub fn is_mount(self) -> bool {
        match self {
            Self::Transfer | Self::Connect | Self::FirstByte => false,
            Self::Mount
            | Self::MountRandom
            | Self::MountFind
            | Self::MountList
            | Self::MountStatus
            | Self::MountWrite => true,
        }
    }
}

/// A link's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkShape {
    /// RTT in milliseconds.
    pub rtt_ms: f64,
    /// Line rate towards the client in bits per second; `None` if unlimited.
    pub down_bits: Option<f64>,
    /// Line rate towards the server in bits per second; `None` if unlimited.
    pub up_bits: Option<f64>,
    /// Share of packets lost at random, 0 to 1.
    pub loss: f64,
    /// Largest extra delay in milliseconds.
    pub jitter_ms: f64,
    /// Changes of the link during a run, as text for a reader: "after 4 s, 250 ms".
    #[serde(default)]
    pub changes: Vec<String>,
    /// Upper limit of the payload rate in the direction of the data, bytes per second: the line rate less TCP and IP
    /// headers. `None` if the rate is unlimited or changes during a run.
    pub payload_limit: Option<f64>,
}

/// One run of one tool, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`Scenario::name`].
    pub scenario: String,
    /// The tool, such as `rclone`.
    pub tool: String,
    /// `default`, or a short name of other settings, such as `best`.
    pub settings: String,
    /// The version that the tool reports.
    pub version: String,
    /// The command, with the variables of the benchmark unexpanded.
    pub command: String,
    /// Round number; 0 is the warm-up, which does not count.
    pub round: u32,
    /// How the run ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whole-process time; time to the first byte for [`Measure::FirstByte`]; for mounts, the time until it is mounted.
    pub seconds: f64,
    /// Processor time of the tool and its children.
    pub client_cpu: f64,
    /// Processor time of the server during the run, if there is one.
    pub server_cpu: Option<f64>,
    /// Largest resident set of the tool, or of its largest child.
    pub peak_rss: u64,
    /// Bytes on the wire from client to server, headers included.
    pub wire_up: Option<u64>,
    /// Bytes on the wire from server to client, headers included.
    pub wire_down: Option<u64>,
    /// Packets that the link dropped because its queue was full.
    pub dropped: Option<u64>,
    /// For [`Measure::Mount`]: seconds from opening a file, already looked up, to its first 4 KiB.
    pub first_byte: Option<f64>,
    /// For [`Measure::Mount`]: bytes per second when reading the file from end to end.
    pub read_rate: Option<f64>,
    /// For [`Measure::Mount`]: bytes that the reading program has received, over time since it opened the file.
    #[serde(default)]
    pub read: Vec<ByteSample>,
    /// For other measures of mounts: the steps that are timed.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Bytes on the wire over time, towards the data's destination.
    pub wire: Vec<ByteSample>,
    /// Progress events of haul; empty for other tools.
    pub progress: Vec<ProgressSample>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The result was compared with the source and is correct.
    Ok,
    /// The tool exited with an error, exceeded the time limit, or gave no result.
    Failed {
        /// Its exit status and the last lines of its standard error, or what else failed.
        cause: String,
    },
    /// The tool reported success, but the result differs from the source. The time of such a run is not used.
    Wrong {
        /// The first difference.
        cause: String,
    },
    /// The tool, or something it needs, is not installed on this machine, or the scenario could not be set up.
    Missing {
        /// What is missing, and how to get it.
        cause: String,
    },
}

/// A part of a run with a time of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Such as `until closed`; the same in all runs of a scenario.
    pub name: String,
    /// Its time; of several equal operations, the mean.
    pub seconds: f64,
}

/// A sample of a counter of bytes: that of the link, or that of a reading program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ByteSample {
    /// Seconds since the start of the run, or since the file was opened.
    pub at: f64,
    /// Bytes since then.
    pub bytes: u64,
}

/// One progress event of haul.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProgressSample {
    /// Seconds since haul, once connected, began the transfer.
    pub at: f64,
    /// Bytes of the data set that have arrived.
    pub bytes: u64,
    /// Connections in use.
    pub lanes: u32,
    /// Bytes that may be in flight.
    pub window: u64,
    /// Shortest RTT in milliseconds.
    pub rtt_ms: Option<f64>,
}
