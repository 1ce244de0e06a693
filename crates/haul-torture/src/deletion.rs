//! What `--delete` may remove: `--max-delete`, `--delete-from-empty` and `--ignore-errors`.

use crate::chance::Chance;

/// `--max-delete`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A number of entries.
    Entries(u64),
    /// A percentage of the destination's entries.
    Percent(f64),
}

impl Limit {
    /// Whether `removed` of `entries` entries may be removed.
    pub fn allows(self, removed: usize, entries: usize) -> bool {
        match self {
            Self::Entries(most) => removed as u64 <= most,
            Self::Percent(percent) => removed as f64 * 100.0 <= entries as f64 * percent,
        }
    }
}

/// Options of `--delete`. By default, it has no limit, and stays off after errors and with an empty source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deletion {
    /// `--max-delete`: beyond it, nothing is removed.
    pub limit: Option<Limit>,
    /// `--delete-from-empty`: an empty source removes everything.
    pub from_empty: bool,
    /// `--ignore-errors`: a failed listing of the source does not prevent removals.
    pub ignore_errors: bool,
}

impl Deletion {
    /// Random options.
    pub fn random(chance: &mut Chance) -> Self {
        let limit = match chance.below(6) {
            0 => Some(Limit::Entries(*chance.pick(&[0, 1, 2, 3, 5, 8, 1000]))),
            1 => Some(Limit::Percent(*chance.pick(&[0.0, 2.5, 10.0, 25.0, 50.0, 99.9, 100.0]))),
            _ => None,
        };
        Self { limit, from_empty: chance.one_in(3), ignore_errors: chance.one_in(3) }
    }

    /// The arguments for haul.
    pub fn arguments(self) -> Vec<String> {
        let mut arguments = Vec::new();
        match self.limit {
            Some(Limit::Entries(most)) => arguments.push(format!("--max-delete={most}")),
            Some(Limit::Percent(percent)) => arguments.push(format!("--max-delete={percent}%")),
            None => {}
        }
        if self.from_empty {
            arguments.push("--delete-from-empty".into());
        }
        if self.ignore_errors {
            arguments.push("--ignore-errors".into());
        }
        arguments
    }
}
