//! Options that the destination may not support. Without a warning, a user who asks for owners or durable files would
//! not notice that a server stores none.
//!
//! Defaults cause no warning: that a server stores no modes is no news in each run.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use haul_engine::Job;
use haul_storage::Capabilities;

use crate::args::TransferArgs;
use crate::options::PreserveArg;
use crate::output::Printer;

/// A feature that an option requires of the destination.
#[derive(Debug, Clone, Copy)]
struct Wish {
    option: &'static str,
    /// The metadata or property, for the warning.
    what: &'static str,
    is_possible: fn(&Capabilities) -> bool,
    /// Whether the warning is left out if no source supports it either, because nothing is lost then.
    from_source: bool,
}

const MODES: (&str, fn(&Capabilities) -> bool) = ("modes", |can| can.mode);
const TIMES: (&str, fn(&Capabilities) -> bool) = ("times", |can| can.times);
const OWNERS: (&str, fn(&Capabilities) -> bool) = ("owners", |can| can.owner);
const XATTRS: (&str, fn(&Capabilities) -> bool) = ("extended attributes", |can| can.xattrs);
const LINKS: (&str, fn(&Capabilities) -> bool) = ("hard links", |can| can.hard_links);
const SYNC: (&str, fn(&Capabilities) -> bool) = ("durable writes", |can| can.sync);

/// The features that the options of a run require of the destination.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    wishes: Vec<Wish>,
    /// The destinations that were warned about.
    warned: Mutex<HashSet<String>>,
}

impl Asked {
    /// The features that the command line requires, and those that the merged settings `preserve` and `sync` require.
    pub(crate) fn of(args: &TransferArgs, preserve: Option<PreserveArg>, sync: bool) -> Self {
        let keep = preserve.unwrap_or_default();
        let list = if args.archive { "--archive" } else { "--preserve" };
        let owner = if args.owner { "--owner" } else { list };
        let xattrs = if args.xattrs { "--xattrs" } else { list };
        let wishes = [
            (keep.mode, list, MODES, true),
            // A source that cannot set times may have them.
            (keep.times, list, TIMES, false),
            (keep.owner || args.owner, owner, OWNERS, true),
            (keep.xattrs || args.xattrs, xattrs, XATTRS, true),
            (keep.links, list, LINKS, true),
            (!args.select.chmod.is_empty(), "--chmod", MODES, false),
            (args.select.chown.is_some(), "--chown", OWNERS, false),
            (sync, "--fsync", SYNC, false),
        ];
        let wishes = wishes.into_iter().filter(|wish| wish.0);
        let wish = |(_, option, (what, is_possible), from_source)| Wish {
            option,
            what,
            is_possible,
            from_source,
        };
        Self { wishes: wishes.map(wish).collect(), warned: Mutex::default() }
    }

    /// Warns, once for each destination, about options that it does not support.
    pub(crate) fn warn(&self, jobs: &[Job], printer: &Printer) {
        let Some(job) = jobs.first() else { return };
        let sources: Vec<_> = jobs.iter().map(|job| job.source.capabilities()).collect();
        let Some(message) = self.lost(&sources, job.destination.capabilities()) else { return };
        let name = job.destination.location().to_string();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(name.clone()) {
            printer.warning(&name, &message);
        }
    }

    /// The warning, if the destination does not support an option.
    fn lost(&self, sources: &[&Capabilities], destination: &Capabilities) -> Option<String> {
        let is_lost = |wish: &&Wish| {
            let has = sources.iter().any(|source| (wish.is_possible)(source));
            !(wish.is_possible)(destination) && (has || !wish.from_source)
        };
        let mut lost: Vec<(&str, Vec<&str>)> = Vec::new();
        for wish in self.wishes.iter().filter(is_lost) {
            match lost.iter_mut().find(|(option, _)| *option == wish.option) {
                Some((_, whats)) => whats.push(wish.what),
                None => lost.push((wish.option, vec![wish.what])),
            }
        }
        let shown =
            |(option, whats): &(&str, Vec<&str>)| format!("{option} ({})", whats.join(", "));
        let shown: Vec<_> = lost.iter().map(shown).collect();
        (!shown.is_empty())
            .then(|| format!("this destination does not support {}", shown.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::Medium;

    #[test]
    fn the_warning_names_each_option_that_the_destination_does_not_support() {
        let args = TransferArgs { archive: true, owner: true, ..TransferArgs::default() };
        let asked = Asked::of(&args, Some(PreserveArg::ALL), true);
        let none = Capabilities::least(Medium::Link);
        let all = none.clone().with(|can| {
            (can.mode, can.times, can.owner) = (true, true, true);
            (can.xattrs, can.hard_links, can.sync) = (true, true, true);
        });
        assert_eq!(asked.lost(&[&all], &all), None);
        assert_eq!(
            asked.lost(&[&none, &all], &none).unwrap(),
            "this destination does not support --archive (modes, times, extended attributes, hard links), --owner \
             (owners), --fsync (durable writes)"
        );
        assert_eq!(
            asked.lost(&[&none], &none).unwrap(),
            "this destination does not support --archive (times), --fsync (durable writes)"
        );
        assert_eq!(Asked::of(&TransferArgs::default(), None, false).lost(&[&all], &none), None);
    }
}
