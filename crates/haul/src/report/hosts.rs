//! What is known of each host besides its events: where its paths begin, its manifest, its failures.

use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_engine::FileEvent;
use haul_storage::{Error, RelPath};

use crate::manifest::Manifest;
use crate::output::Printer;

/// What is known of many hosts besides their events.
#[derive(Debug)]
pub(crate) struct HostReports {
    pub(super) names: Vec<String>,
    hosts: Mutex<Vec<HostReport>>,
}

/// What is known of one of them.
#[derive(Debug, Default)]
pub(super) struct HostReport {
    pub(super) what: What,
    /// What failed for it so far.
    pub(super) failed: u64,
    /// Of these, sources that could not be opened: the transfer knows nothing of them.
    unopened: u64,
    /// The first of its failures.
    pub(super) first_failure: Option<String>,
}

impl HostReports {
    /// Nothing yet of hosts with these names.
    pub(crate) fn new(names: Vec<String>) -> Self {
        let hosts = names.iter().map(|_| HostReport::default()).collect();
        Self { names, hosts: Mutex::new(hosts) }
    }

    /// A host has been opened: paths are printed below `base`, `manifest` hears of every finished
    /// entry, and `failures` are sources that could not be opened.
    pub(crate) fn open(
        &self,
        host: usize,
        base: RelPath,
        manifest: Option<Manifest>,
        failures: Vec<Error>,
        printer: &Printer,
    ) {
        let mut hosts = self.lock();
        hosts[host].what = What { base, manifest };
        for error in failures {
            printer.failure_of(Some(&self.names[host]), &error);
            hosts[host].unopened += 1;
            hosts[host].note(&error);
        }
    }

    /// How many sources could not be opened.
    pub(crate) fn unopened_sources(&self) -> u64 {
        self.lock().iter().map(|host| host.unopened).sum()
    }

    /// The manifests, each with the name of its host.
    pub(crate) fn take_manifests(&self) -> Vec<(String, Manifest)> {
        let mut hosts = self.lock();
        let manifests = hosts.iter_mut().map(|host| host.what.manifest.take());
        let named = self.names.iter().cloned().zip(manifests);
        named.filter_map(|(name, manifest)| Some((name, manifest?))).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<HostReport>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostReport {
    /// Something of it failed.
    pub(super) fn note(&mut self, error: &Error) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }
}

/// What the events of one transfer are about.
#[derive(Debug, Default)]
pub(super) struct What {
    /// Paths are printed below it.
    pub(super) base: RelPath,
    /// Hears of every finished entry.
    pub(super) manifest: Option<Manifest>,
}

impl What {
    /// Notes a finished entry; gives its path for people.
    pub(super) fn note(&mut self, file: &FileEvent) -> RelPath {
        if let Some(manifest) = &mut self.manifest {
            manifest.note(file);
        }
        below(&self.base, &file.path)
    }
}

/// `path` as seen from `base`, in which it lies.
pub(super) fn below(base: &RelPath, path: &RelPath) -> RelPath {
    if base.is_root() || !path.starts_with(base) {
        return path.clone();
    }
    let rest = path.as_bytes().get(base.as_bytes().len() + 1..).unwrap_or_default();
    // The end of a valid path from a component on is a valid path.
    RelPath::parse(rest).unwrap_or_else(|_| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_the_destination() {
        let path = |text: &str| RelPath::parse(text).unwrap();
        assert_eq!(below(&path("a/b"), &path("a/b/c/d")), path("c/d"));
        assert_eq!(below(&path("a"), &path("a")), RelPath::root());
        assert_eq!(below(&RelPath::root(), &path("x")), path("x"));
        assert_eq!(below(&path("a"), &path("ab")), path("ab"));
    }
}
