//! The prompt before files from a ticket are written: its sender may have chosen any files.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use haul_engine::Cancel;
use haul_engine::tree::{Counted, Measured, measure};
use haul_sftp::ssh::Prompter as _;
use haul_storage::{Location, RelPath, Storage, text};
use tokio::time::timeout;

use crate::backends::Storages;
use crate::exit::Stop;
use crate::output::{Printer, human};
use crate::plan::Plan;
use crate::terminal::Terminal;

/// How long files are counted. After that, the prompt shows a lower bound.
const PATIENCE: Duration = Duration::from_secs(5);

/// What would be received.
#[derive(Debug, Default)]
struct Offer {
    /// The names of the shares.
    shares: Vec<String>,
    files: u64,
    bytes: u64,
    /// Whether there may be more.
    is_partial: bool,
}

/// Prompts whether to write the files of a plan that come from tickets to DEST; `how` is `--yes` and `--dry-run`.
/// Returns true without a prompt if there are none, with `--yes`, `--dry-run` or `--json`, and without a terminal.
///
/// # Errors
/// If the terminal fails.
pub(crate) async fn confirm(
    plan: &Plan,
    destination: &Location,
    how: (bool, bool),
    storages: &Storages<'_>,
    printer: &Printer,
) -> Result<bool, Stop> {
    let sources: Vec<_> = plan.jobs.iter().map(|job| (&*job.source, &job.source_path)).collect();
    confirm_sources(&sources, destination, how, storages, printer).await
}

/// [`confirm`] for a copy to many hosts: prompts for its sources, each with its path.
///
/// # Errors
/// If the terminal fails.
pub(crate) async fn confirm_sources(
    sources: &[(&dyn Storage, &RelPath)],
    destination: impl Display,
    (yes, dry_run): (bool, bool),
    storages: &Storages<'_>,
    printer: &Printer,
) -> Result<bool, Stop> {
    let prompts = !yes
        && !dry_run
        && !printer.is_json()
        && io::stdin().is_terminal()
        && io::stderr().is_terminal();
    let mut offered = sources.to_vec();
    offered.retain(|(source, _)| matches!(source.location(), Location::Peer { .. }));
    if !prompts || offered.is_empty() {
        return Ok(true);
    }
    let prompt = offer(&offered, storages).await.prompt(destination);
    let reply = Terminal { quiet: printer.is_quiet() }.visible(&prompt).await?;
    let is_yes = |reply: String| {
        let reply = reply.trim();
        reply.eq_ignore_ascii_case("y") || reply.eq_ignore_ascii_case("yes")
    };
    let is_confirmed = reply.is_some_and(is_yes);
    if !is_confirmed {
        printer.note("nothing was received");
    }
    Ok(is_confirmed)
}

async fn offer(offered: &[(&dyn Storage, &RelPath)], storages: &Storages<'_>) -> Offer {
    let mut offer = Offer::default();
    for (source, _) in offered {
        if let Some(name) = storages.share_name(source.location()).await
            && !offer.shares.contains(&name)
        {
            offer.shares.push(name);
        }
    }
    let counting = async {
        let mut is_complete = true;
        for (source, path) in offered {
            let Ok(top) = source.stat(path).await else {
                // The copy reports the error.
                is_complete = false;
                continue;
            };
            let (files, bytes) = (&mut offer.files, &mut offer.bytes);
            let count = |found: Measured<'_>| {
                if let Measured::Entry { entry, .. } = found
                    && entry.is_file()
                {
                    *files += 1;
                    *bytes += if entry.size == haul_storage::UNKNOWN_SIZE { 0 } else { entry.size };
                }
            };
            let counted = Counted::default();
            is_complete &= measure(*source, top, &counted, &Cancel::default(), count).await;
        }
        is_complete
    };
    let is_complete = timeout(PATIENCE, Box::pin(counting)).await.unwrap_or(false);
    offer.is_partial = !is_complete;
    offer
}

impl Offer {
    fn prompt(&self, destination: impl Display) -> String {
        let shares: Vec<_> =
            self.shares.iter().map(|name| format!("\"{}\"", text::name(name.as_bytes()))).collect();
        format!(
            "Receive {}{}, {} from {} into {destination}? [y/N] ",
            if self.is_partial { "at least " } else { "" },
            human::plural(self.files, "file"),
            text::bytes(self.bytes),
            shares.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_has_names_number_size_and_destination() {
        let shares = vec!["photos".to_owned(), "x\u{1b}[2J".to_owned()];
        let offer = Offer { shares, files: 1, bytes: 3 << 20, is_partial: true };
        let prompt = offer.prompt(Location::parse("here").unwrap());
        let start = "Receive at least 1 file, 3.00 MiB from \"photos\", \"x";
        assert!(prompt.starts_with(start), "{prompt}");
        assert!(prompt.ends_with(" into here? [y/N] ") && !prompt.contains('\u{1b}'), "{prompt}");
    }
}
