//! State of each host besides its events: the base of its paths, its manifest, its failures.

use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_engine::FileEvent;
use haul_storage::{Error, RelPath};

use crate::manifest::Manifest;
use crate::output::Printer;

/// State of many hosts besides their events.
#[derive(Debug)]
pub(crate) struct HostReports {
    pub(super) names: Vec<String>,
    hosts: Mutex<Vec<HostReport>>,
}

/// State of one host.
#[derive(Debug, Default)]
pub(super) struct HostReport {
    pub(super) target: Target,
    /// Number of failures so far.
    pub(super) failed: u64,
    /// Of these, sources that could not be opened: the transfer does not count them.
    unopened: u64,
    /// The first of its failures.
    pub(super) first_failure: Option<String>,
}

impl HostReports {
    /// The initial state of hosts with these names.
    pub(crate) fn new(names: Vec<String>) -> Self {
        let hosts = names.iter().map(|_| HostReport::default()).collect();
        Self { names, hosts: Mutex::new(hosts) }
    }

    /// Notes that a host has been opened: paths are printed relative to `base`, `manifest` gets every
    /// finished entry, and `failures` are sources that could not be opened.
    pub(crate) fn open(
        &self,
        host: usize,
        base: RelPath,
        manifest: Option<Manifest>,
        failures: Vec<Error>,
        printer: &Printer,
    ) {
        let mut hosts = self.lock();
        hosts[host].target = Target { base, manifest };
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
        let manifests = hosts.iter_mut().map(|host| host.target.manifest.take());
        let named = self.names.iter().cloned().zip(manifests);
        named.filter_map(|(name, manifest)| Some((name, manifest?))).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<HostReport>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostReport {
    /// Counts a failure.
    pub(super) fn note(&mut self, error: &Error) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }
}

/// The destination that the events of one transfer are about.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// Paths are printed relative to it.
    pub(super) base: RelPath,
    /// Gets every finished entry.
    pub(super) manifest: Option<Manifest>,
}

impl Target {
    /// Notes a finished entry; returns its path for display.
    pub(super) fn note(&mut self, file: &FileEvent) -> RelPath {
        if let Some(manifest) = &mut self.manifest {
            manifest.note(file);
        }
        below(&self.base, &file.path)
    }
}

/// `path` relative to `base`, the root for `base` itself; unchanged if it is neither `base` nor below it.
pub(super) fn below(base: &RelPath, path: &RelPath) -> RelPath {
    if base.is_root() || !path.starts_with(base) {
        return path.clone();
    }
    let rest = path.as_bytes().get(base.as_bytes().len() + 1..).unwrap_or_default();
    // The rest of a valid path from a component on is a valid path.
    RelPath::parse(rest).unwrap_or_else(|_| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_base() {
        let path = |text: &str| RelPath::parse(text).unwrap();
        assert_eq!(below(&path("a/b"), &path("a/b/c/d")), path("c/d"));
        assert_eq!(below(&path("a"), &path("a")), RelPath::root());
        assert_eq!(below(&RelPath::root(), &path("x")), path("x"));
        assert_eq!(below(&path("a"), &path("ab")), path("ab"));
    }
}
