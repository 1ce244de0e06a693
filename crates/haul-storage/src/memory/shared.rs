//! State shared by the storage and the files opened from it, and the steps of a call: count it, inject
//! faults, cross the link, do the work, return the result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::data::Data;
use super::faults::{Change, Failure, Verdict};
use super::link::{Link, Refused};
use super::lock::lock;
use super::tree::{Content, Node, Refusal, Seen, Tree};
use super::{Faults, Operation, Pattern};
use crate::{
    Capabilities, CommitOptions, Digest, Entry, Error, ErrorKind, Identity, Location, Metadata,
    RelPath, Result, Retry,
};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) location: Location,
    pub(super) capabilities: Capabilities,
    pub(super) link: Option<Arc<Link>>,
    pub(super) tree: Arc<Mutex<Tree>>,
    pub(super) faults: Faults,
    pub(super) options: Options,
    /// Files whose content is compared with a pattern instead of stored.
    pub(super) sinks: Mutex<BTreeMap<RelPath, Pattern>>,
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) seen: Seen,
    pub(super) read_block: u64,
    pub(super) list_batch: usize,
    /// Whether a listing reads each batch from a position when it is consumed.
    pub(super) lists_by_position: bool,
    pub(super) capacity: Option<u64>,
    pub(super) pattern: Option<Pattern>,
    pub(super) records: bool,
    /// If set, reported as the digest of every file, whatever its content.
    pub(super) digest: Option<Digest>,
}

impl Shared {
    /// Counts a call and applies the faults that precede it: delay, stall, change of the file, failure.
    pub(super) async fn begin(&self, operation: Operation, path: &RelPath) -> Result<Call> {
        let verdict = self.faults.judge(operation, path);
        if !verdict.delay.is_zero() {
            tokio::time::sleep(verdict.delay).await;
        }
        if verdict.stall {
            std::future::pending::<()>().await;
        }
        for change in &verdict.changes {
            self.change(path, *change);
        }
        if let Some(failure) = verdict.fail {
            return Err(self.ordered(operation, path, failure));
        }
        Ok(Call { verdict, operation })
    }

    /// Ends a call. A fault may replace its result by an error.
    pub(super) fn end<T>(&self, call: &Call, path: &RelPath, value: T) -> Result<T> {
        match call.verdict.lose_response {
            Some(failure) => Err(self.ordered(call.operation, path, failure)),
            None => Ok(value),
        }
    }

    /// Performs a call that only accesses the tree.
    pub(super) async fn perform<T>(
        &self,
        operation: Operation,
        path: &RelPath,
        work: impl FnOnce(&mut Tree) -> Result<T, Refusal> + Send,
    ) -> Result<T> {
        let call = self.begin(operation, path).await?;
        self.wait_rtt(operation, path).await?;
        let value = work(&mut lock(&self.tree));
        let value = value.map_err(|refusal| self.error(operation, path, refusal))?;
        self.end(&call, path, value)
    }

    /// Waits for one RTT, if there is a link.
    pub(super) async fn wait_rtt(&self, operation: Operation, path: &RelPath) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        link.wait_rtts(1).await.map_err(|refused| self.unreachable(operation, path, &refused))
    }

    /// Sends `size` bytes of content, if there is a link.
    pub(super) async fn send(&self, operation: Operation, path: &RelPath, size: u64) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        link.send(size).await.map_err(|refused| self.unreachable(operation, path, &refused))
    }

    pub(super) fn unreachable(&self, operation: Operation, path: &RelPath, _: &Refused) -> Error {
        let refusal = Refusal::new(ErrorKind::Unreachable, "every lane was refused");
        self.error(operation, path, refusal)
    }

    pub(super) fn error(&self, operation: Operation, path: &RelPath, refusal: Refusal) -> Error {
        Error::new(refusal.kind, operation.verb())
            .at(self.location.display(path))
            .because(refusal.cause)
    }

    /// The error of a commit. It is final if the target is not the expected version (`Changed`).
    pub(super) fn commit_error(
        &self,
        operation: Operation,
        path: &RelPath,
        refusal: Refusal,
    ) -> Error {
        let is_final = refusal.kind == ErrorKind::Changed;
        let error = self.error(operation, path, refusal);
        if is_final { error.with_retry(Retry::Never) } else { error }
    }

    /// Checks that a commit may replace the version at `path`.
    pub(super) fn check(
        &self,
        tree: &Tree,
        path: &RelPath,
        options: &CommitOptions,
    ) -> Result<(), Refusal> {
        if !self.capabilities.conditional_commits || options.replaced().is_none() {
            return Ok(());
        }
        let found = tree.find_or_none(path)?.map(|node| self.identity(&node));
        let checked = options.check(found.as_ref());
        checked.map_err(|error| Refusal { kind: error.kind(), cause: error.cause() })
    }

    /// The error of an injected fault.
    pub(super) fn ordered(&self, operation: Operation, path: &RelPath, failure: Failure) -> Error {
        let cause = format!("{} (a fault that the test ordered)", failure.kind.describe());
        let error = self.error(operation, path, Refusal::new(failure.kind, &cause));
        match failure.retry {
            Some(retry) => error.with_retry(retry),
            None => error,
        }
    }

    pub(super) fn entry(&self, path: RelPath, node: &Node) -> Entry {
        node.entry(path, &self.capabilities, self.options.seen)
    }

    pub(super) fn identity(&self, node: &Node) -> Identity {
        self.entry(RelPath::root(), node).identity()
    }

    /// The metadata that can be set on a copy, including extended attributes.
    pub(super) fn metadata(&self, node: &Node) -> Metadata {
        let mut metadata = self.entry(RelPath::root(), node).metadata();
        if self.capabilities.xattrs {
            metadata.xattrs = Some(node.lock().xattrs.clone().into_iter().collect());
        }
        metadata
    }

    /// Empty content for a new file at `path`.
    pub(super) fn new_data(&self, path: &RelPath) -> Data {
        let pattern = lock(&self.sinks).get(path).copied().or(self.options.pattern);
        pattern.map_or_else(Data::new, Data::sink)
    }

    /// Checks that `more` bytes fit into the capacity, and that a file may have `size` bytes.
    pub(super) fn room(&self, tree: &Tree, size: u64, more: u64) -> Result<(), Refusal> {
        if self.capabilities.max_file_size.is_some_and(|most| size > most) {
            return Err(Refusal::new(ErrorKind::NoSpace, "the file is too long"));
        }
        if self.options.capacity.is_some_and(|most| tree.used() + more > most) {
            return Err(ErrorKind::NoSpace.into());
        }
        Ok(())
    }

    fn change(&self, path: &RelPath, change: Change) {
        let mut tree = lock(&self.tree);
        let Ok(node) = tree.find(path) else { return };
        match change {
            Change::Vanish => {
                node.lock().gone = true;
                drop(tree.detach(path));
                return;
            }
            Change::Resize(size) => {
                if let Content::File(data) = &mut node.lock().content {
                    data.resize(size);
                }
            }
            Change::Touch => {}
        }
        let mut state = node.lock();
        state.modified = tree.tick();
        state.version += 1;
    }
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) verdict: Verdict,
    operation: Operation,
}
