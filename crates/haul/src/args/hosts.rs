//! The options of a copy to or from many hosts.

use std::path::PathBuf;

use clap::Args;
use haul_engine::fan::MOST_AT_ONCE;

use crate::units::Count;

/// Options of a copy to or from many hosts.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostArgs {
    /// Read hosts from FILE, one list per line, # begins a comment; DEST, or each SOURCE, then has no
    /// host: :/dir/, ada@:/dir/, sftp://ada@:2222/dir/
    #[arg(long, value_name = "FILE", help_heading = "Hosts")]
    pub(crate) hosts: Option<PathBuf>,

    /// Skip these hosts: node03,node07
    #[arg(long, value_name = "LIST", help_heading = "Hosts")]
    pub(crate) exclude_hosts: Option<String>,

    /// Stop all hosts at the first one that fails
    #[arg(long, help_heading = "Hosts")]
    pub(crate) fail_fast: bool,

    /// Hosts to serve at once, as far as --memory allows [default: 32]
    #[arg(long, value_name = "N", help_heading = "Hosts")]
    pub(crate) fanout: Option<Count<1, { MOST_AT_ONCE as u64 }>>,
}
