//! `haul-bench`: compares haul with similar tools.
//!
//! `run` runs scenarios and prints tables, `list` lists scenarios and tools, `report` makes tables and an HTML page
//! from results, `link` creates an emulated link for experiments. This file parses arguments; each command has its own
//! file.

mod link;
mod list;
mod report;
mod run;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use haul_bench::link::{Change, Means, Percent, Rate, Time};

#[derive(Debug, Parser)]
#[command(name = "haul-bench", version, about = "Measures haul beside its peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure; prints tables when all is done
    Run(RunArguments),
    /// Show scenarios, sets and tools
    List(FileArguments),
    /// Make tables or a page of results
    Report(ReportArguments),
    /// Make a link and run a command on its client's side, or wait
    Link(LinkArguments),
    /// The process that clears up; `run` starts it
    #[command(hide = true)]
    Guard {
        directory: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        worker: Vec<OsString>,
    },
    /// The process that measures; the guard starts it
    #[command(hide = true)]
    Worker {
        directory: PathBuf,
        #[command(flatten)]
        run: RunArguments,
    },
}

#[derive(Debug, Args)]
struct FileArguments {
    /// Scenarios from this file instead of those that come with haul-bench
    #[arg(long, value_name = "FILE")]
    scenarios: Option<PathBuf>,
    /// Tools from this file instead of those that come with haul-bench
    #[arg(long, value_name = "FILE")]
    tools_file: Option<PathBuf>,
    /// A tool that is not on PATH, such as mscp=/opt/mscp/bin/mscp
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    peer: Vec<(String, PathBuf)>,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Sets, scenarios, their beginnings, or patterns with `*`; `list` shows them
    #[arg(value_name = "SCENARIO", default_value = "quick")]
    words: Vec<String>,
    #[command(flatten)]
    files: FileArguments,
    /// Only these tools
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    tools: Vec<String>,
    /// Counted runs of each tool, instead of the scenario's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The haul to measure; by default the one built from this source
    #[arg(long, value_name = "PATH")]
    haul: Option<PathBuf>,
    /// Work below this directory, on the disk that is to be measured
    #[arg(long, value_name = "DIR", env = "HAUL_BENCH_WORK", default_value = "/var/tmp")]
    work: PathBuf,
    /// Make links by netem or tun, instead of netem where the kernel has it
    #[arg(long, value_name = "MEANS")]
    links: Option<Means>,
    /// Append results to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a page of the results
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ReportArguments {
    /// Results, as `run` wrote them
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,
    /// Write a page here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write tables here instead of printing them
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write one SVG with the rates of all transfers here; all must have the same link and direction
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct LinkArguments {
    /// Round trip
    #[arg(long, default_value = "100ms", value_name = "TIME")]
    rtt: Time,
    /// Rate from client to server, and back unless --rate-back says otherwise; unlimited without it
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Rate from server to client
    #[arg(long, value_name = "RATE")]
    rate_back: Option<Rate>,
    /// Longest wait in the queue; one round trip, at least 50ms, without it
    #[arg(long, value_name = "TIME")]
    queue: Option<Time>,
    /// Share of packets lost each way
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Percent>,
    /// Largest extra delay each way
    #[arg(long, value_name = "TIME")]
    jitter: Option<Time>,
    /// Change the link later, such as 4s:rtt=250ms,rate=300mbit (also rate-back, queue, loss); may be
    /// repeated
    #[arg(long, value_name = "TIME:CHANGES")]
    then: Vec<Change>,
    /// Seed of loss and jitter
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Servers, each with a link of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    hosts: u16,
    /// Make the link by netem or tun, instead of netem where the kernel has it
    #[arg(long, value_name = "MEANS")]
    links: Option<Means>,
    /// Runs in the client's network; its exit status is the program's
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err("it has the form NAME=PATH".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Run(run) => run::front(&run),
        Command::Worker { directory, run } => run::worker(&directory, &run),
        Command::Guard { directory, worker } => {
            haul_bench::guard::guard(&directory, &worker).map_err(|error| error.to_string())
        }
        Command::List(files) => list::list(&files),
        Command::Report(report) => report::report(&report),
        Command::Link(link) => link::link(&link),
    };
    outcome.unwrap_or_else(|error| {
        // If standard error is closed, only the exit status reports the failure.
        drop(writeln!(io::stderr(), "haul-bench: {error}"));
        ExitCode::from(2)
    })
}
