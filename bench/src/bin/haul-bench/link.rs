//! `haul-bench link`: creates an emulated link for experiments.

use std::io::{self, Write};
use std::process::ExitCode;

use haul_bench::link::{LinkSpec, Means, Network};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::LinkArguments;

/// Runs the command over the link and returns its exit status; without a command, waits for a signal.
pub(crate) fn link(arguments: &LinkArguments) -> Result<ExitCode, String> {
    let spec = spec(arguments)?;
    let means = arguments.links.unwrap_or_else(Means::of_this_machine);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| error.to_string())?;
    let specs = vec![spec; usize::from(arguments.hosts)];
    let network = Network::new(&specs, means).map_err(|error| error.to_string())?;
    let code = match arguments.command.split_first() {
        Some((program, words)) => {
            let mut command = network.client().command(program);
            command.args(words);
            for (n, link) in network.links().iter().enumerate() {
                let suffix = if n == 0 { String::new() } else { format!("_{}", n + 1) };
                command
                    .env(format!("LINK_SERVER{suffix}"), link.address().to_string())
                    .env(format!("LINK_SERVER6{suffix}"), link.address6().to_string())
                    .env(format!("LINK_SERVER_NET{suffix}"), link.server().path());
            }
            // The link's changes are timed from the start of the command.
            network.restart();
            let status = command
                .status()
                .map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
            use std::os::unix::process::ExitStatusExt;
            let code = status.code().or(status.signal().map(|signal| 128 + signal));
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
        }
        None => {
            describe(&network, means).map_err(|error| error.to_string())?;
            let signal = signals.forever().next();
            signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(0)
        }
    };
    let passed = network.traffic().map_err(|error| error.to_string())?;
    let count = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    let line = format!(
        "link: {} bytes up, {} down, {} packets lost, {} dropped at full queues",
        passed.up,
        passed.down,
        count(passed.lost),
        count(passed.dropped)
    );
    writeln!(io::stderr(), "{line}").map_err(|error| error.to_string())?;
    Ok(ExitCode::from(code))
}

fn spec(arguments: &LinkArguments) -> Result<LinkSpec, String> {
    let mut spec = LinkSpec::new(arguments.rtt.0, arguments.rate.map(|rate| rate.0));
    if let Some(rate) = arguments.rate_back {
        spec.down = Some(rate.0);
    }
    if let Some(queue) = arguments.queue {
        spec.queue = queue.0;
    }
    spec.loss = arguments.loss.map_or(0.0, |loss| loss.0);
    spec.jitter = arguments.jitter.map_or(spec.jitter, |jitter| jitter.0);
    spec.seed = arguments.seed;
    for change in &arguments.then {
        spec.add_change(change.clone())?;
    }
    Ok(spec)
}

/// Prints how to enter the namespaces.
fn describe(network: &Network, means: Means) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "links by {means}, until this program ends")?;
    writeln!(out, "client            nsenter --net={} COMMAND", network.client().path().display())?;
    for link in network.links() {
        let path = link.server().path();
        let (address, address6) = (link.address(), link.address6());
        writeln!(
            out,
            "server {address:10} nsenter --net={} COMMAND   ({address6})",
            path.display()
        )?;
    }
    writeln!(out, "ready")?;
    out.flush()
}
