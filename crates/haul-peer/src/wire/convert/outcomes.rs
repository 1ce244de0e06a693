//! Results of requests about several files, one per file.

use haul_storage::{Entry, EntryKind, Error, ErrorKind, Result, Whole, text};

use super::super::messages;
use super::{TARGET_MAX, TEXT_MAX, WireError};

/// An entry or an error. A symbolic link whose target exceeds [`TARGET_MAX`] is sent as an error.
pub fn entry_outcome(result: &Result<Entry>) -> messages::EntryOutcome {
    use messages::entry_outcome::Outcome;

    let outcome = match result {
        Ok(entry) => match &entry.kind {
            EntryKind::Symlink(target) if target.len() > TARGET_MAX => {
                let cause = format!("{}: the target of the link is too long", entry.path);
                let error = Error::new(ErrorKind::Unsupported, "list").because(cause);
                Outcome::Error(Box::new((&error).into()))
            }
            _ => Outcome::Entry(Box::new(entry.into())),
        },
        Err(error) => Outcome::Error(Box::new(error.into())),
    };
    messages::EntryOutcome { outcome: Some(outcome) }
}

/// An entry, or the error of the server. If the entry is invalid, an error that names its path.
pub fn entry_result(outcome: messages::EntryOutcome) -> Result<Entry> {
    use messages::entry_outcome::Outcome;

    match outcome.outcome {
        Some(Outcome::Entry(entry)) => {
            // For the error. A slice of the message, so it is cheap to clone.
            let path = entry.path.clone();
            Entry::try_from(*entry).map_err(|error| {
                let path = &path[..path.len().min(TEXT_MAX)];
                let cause = format!("{}: {error}", text::name(path));
                Error::new(ErrorKind::Protocol, "list").because(cause)
            })
        }
        Some(Outcome::Error(error)) => Err((*error).into()),
        None => Err(no_outcome()),
    }
}

/// The results of a message, in order.
pub fn entries(entries: messages::Entries) -> Vec<Result<Entry>> {
    entries.outcomes.into_iter().map(entry_result).collect()
}

/// A small file or an error.
pub fn whole_outcome(result: &Result<Whole>) -> messages::WholeOutcome {
    use messages::whole_outcome::Outcome;

    let outcome = match result {
        Ok(whole) => Outcome::Whole(Box::new(whole.into())),
        Err(error) => Outcome::Error(Box::new(error.into())),
    };
    messages::WholeOutcome { outcome: Some(outcome) }
}

/// A small file, or the error of the server.
pub fn whole_result(outcome: messages::WholeOutcome) -> Result<Whole> {
    use messages::whole_outcome::Outcome;

    match outcome.outcome {
        Some(Outcome::Whole(whole)) => Ok(Whole::try_from(*whole)?),
        Some(Outcome::Error(error)) => Err((*error).into()),
        None => Err(no_outcome()),
    }
}

fn no_outcome() -> Error {
    WireError::Missing("outcome").into()
}
