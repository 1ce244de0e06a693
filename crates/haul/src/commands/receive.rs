//! The question before files from a ticket are written: its sender may have chosen any files.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use haul_engine::Cancel;
use haul_engine::tree::{Counted, Measured, measure};
use haul_sftp::ssh::Prompter as _;
use haul_storage::{Location, RelPath, Storage, text};
use tokio::time::timeout;

use crate::backends::Places;
use crate::exit::Stop;
use crate::output::{Printer, human};
use crate::plan::Plan;
use crate::terminal::Terminal;

/// How long files are counted. After that, the question has a lower bound.
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

/// Asks whether the files of a plan that come from tickets are to be written to DEST. Returns true without asking if
/// there are none, with `--yes`, and if there is no terminal or the results are for a program.
///
/// # Errors
/// If the terminal fails.
pub(crate) async fn is_wanted(
    plan: &Plan,
    destination: &Location,
    how: (bool, bool),
    places: &Places<'_>,
    printer: &Printer,
) -> Result<bool, Stop> {
    let sources: Vec<_> = plan.jobs.iter().map(|job| (&*job.source, &job.source_path)).collect();
    is_wanted_from(&sources, destination, how, places, printer).await
}

/// The same for sources, each with its path, that are copied to a destination of many hosts.
///
/// # Errors
/// If the terminal fails.
pub(crate) async fn is_wanted_from(
    sources: &[(&dyn Storage, &RelPath)],
    destination: impl Display,
    (yes, dry_run): (bool, bool),
    places: &Places<'_>,
    printer: &Printer,
) -> Result<bool, Stop> {
    let is_asked = !yes
        && !dry_run
        && !printer.is_json()
        && io::stdin().is_terminal()
        && io::stderr().is_terminal();
    let mut offered = sources.to_vec();
    offered.retain(|(source, _)| matches!(source.location(), Location::Peer { .. }));
    if !is_asked || offered.is_empty() {
        return Ok(true);
    }
    let question = offer(&offered, places).await.question(destination);
    let answer = Terminal { quiet: printer.is_quiet() }.visible(&question).await?;
    let is_yes = |answer: String| {
        let answer = answer.trim();
        answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes")
    };
    let is_wanted = answer.is_some_and(is_yes);
    if !is_wanted {
        printer.note("nothing was received");
    }
    Ok(is_wanted)
}

async fn offer(offered: &[(&dyn Storage, &RelPath)], places: &Places<'_>) -> Offer {
    let mut offer = Offer::default();
    for (source, _) in offered {
        if let Some(name) = places.share_name(source.location()).await
            && !offer.shares.contains(&name)
        {
            offer.shares.push(name);
        }
    }
    let counting = async {
        let mut is_complete = true;
        for (source, path) in offered {
            // What cannot be read fails again when it is copied, with a message.
            let Ok(top) = source.stat(path).await else { continue };
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
    fn question(&self, destination: impl Display) -> String {
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
    fn the_question_has_name_number_size_and_destination() {
        let shares = vec!["photos".to_owned(), "x\u{1b}[2J".to_owned()];
        let offer = Offer { shares, files: 1, bytes: 3 << 20, is_partial: true };
        let asked = offer.question(Location::parse("here").unwrap());
        assert!(asked.starts_with("Receive at least 1 file, "), "{asked}");
        assert!(asked.contains(" from \"photos\", \"x"), "{asked}");
        assert!(asked.ends_with(" into here? [y/N] ") && !asked.contains('\u{1b}'), "{asked}");
    }
}
