//! Visits every entry of a tree, directories after everything in them.

use std::ops::AddAssign;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use haul_storage::{Entry, EntryStream, Error, ErrorKind, Result, Storage};

use super::at_once;
use crate::Cancel;

/// How often a directory is listed if it turns out not to be empty: listings may miss what changes while they run. A
/// server that continues a listing after the number of entries that it has sent leaves out as many as were removed
/// meanwhile, so each round removes at least half.
pub(crate) const ROUNDS: u32 = 12;

/// The operation on the entries of a tree.
pub(super) trait Visitor {
    /// What is summed up for a directory.
    type Sum: Default + AddAssign;

    /// Whether an entry and all below it take part.
    fn takes(&self, entry: &Entry) -> bool {
        let _ = entry;
        true
    }

    /// Acts on an entry; on a directory once everything below it was acted on without a failure.
    fn act<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>>;

    /// Called when an entry is done, `depth` levels below the top; not `good` if it or something below it
    /// failed. `below` is the sum of its contents. Returns what the directory above counts for it.
    fn done(&self, entry: &Entry, depth: usize, below: Self::Sum, good: bool) -> Self::Sum;

    /// Called on a failure.
    fn failed(&self, entry: &Entry, error: Error);
}

/// Visits `top` and everything below it. After `cancel` it begins nothing more. Returns whether there was no failure,
/// which does not mean that everything was visited if it was cancelled.
pub(super) async fn crawl<V: Visitor>(
    storage: &dyn Storage,
    top: Entry,
    visitor: &V,
    cancel: &Cancel,
) -> bool {
    let at_once = at_once(storage);
    let mut crawl =
        Crawl { visitor, nodes: Vec::new(), free: Vec::new(), ready: Vec::new(), clean: true };
    crawl.visit(top, None);
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < at_once && !cancel.is_cancelled() {
            let Some(step) = crawl.ready.pop() else { break };
            running.push(step.run(storage, visitor));
        }
        let Some(done) = running.next().await else { return crawl.clean };
        crawl.note(done);
    }
}

struct Crawl<'a, V: Visitor> {
    visitor: &'a V,
    /// Directories that are not done. Indices in `free` are reused.
    nodes: Vec<Node<V::Sum>>,
    free: Vec<usize>,
    /// The steps that can run now; the last first, so that deep directories end before others begin.
    ready: Vec<Step>,
    clean: bool,
}

/// A directory.
struct Node<S> {
    entry: Entry,
    above: Option<usize>,
    depth: usize,
    /// The number of its entries that are not done, plus one for its listing.
    pending: usize,
    failed: bool,
    rounds: u32,
    sum: S,
}

enum Step {
    List(usize, Entry),
    /// The rest of a listing.
    More(usize, EntryStream),
    /// Acts on an entry; `node` is set for a directory.
    Act {
        entry: Entry,
        above: Option<usize>,
        node: Option<usize>,
    },
}

enum Done {
    Batch(usize, Result<Vec<Entry>>, Option<EntryStream>),
    Acted { entry: Entry, above: Option<usize>, node: Option<usize>, outcome: Result<()> },
}

impl Step {
    async fn run<V: Visitor>(self, storage: &dyn Storage, visitor: &V) -> Done {
        match self {
            Self::List(node, entry) => match storage.list(&entry.path).await {
                Ok(stream) => next(node, stream).await,
                Err(error) => Done::Batch(node, Err(error), None),
            },
            Self::More(node, stream) => next(node, stream).await,
            Self::Act { entry, above, node } => {
                let outcome = visitor.act(&entry).await;
                Done::Acted { entry, above, node, outcome }
            }
        }
    }
}

fn next(node: usize, mut stream: EntryStream) -> BoxFuture<'static, Done> {
    async move {
        match stream.next().await {
            Some(batch) => Done::Batch(node, batch, Some(stream)),
            None => Done::Batch(node, Ok(Vec::new()), None),
        }
    }
    .boxed()
}

impl<V: Visitor> Crawl<'_, V> {
    /// An entry was found.
    fn visit(&mut self, entry: Entry, above: Option<usize>) {
        if !self.visitor.takes(&entry) {
            return;
        }
        if let Some(above) = above {
            self.nodes[above].pending += 1;
        }
        if !entry.is_dir() {
            return self.ready.push(Step::Act { entry, above, node: None });
        }
        let depth = above.map_or(0, |above| self.nodes[above].depth + 1);
        let node = Node {
            entry: entry.clone(),
            above,
            depth,
            pending: 1,
            failed: false,
            rounds: 1,
            sum: V::Sum::default(),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.ready.push(Step::List(at, entry));
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Batch(node, batch, rest) => {
                let is_end = rest.is_none();
                // Pushed before the entries of the batch, so that it runs after them.
                self.ready.extend(rest.map(|rest| Step::More(node, rest)));
                match batch {
                    Ok(entries) => entries.into_iter().for_each(|entry| {
                        self.visit(entry, Some(node));
                    }),
                    Err(error) => {
                        self.nodes[node].failed = true;
                        self.clean = false;
                        self.visitor.failed(&self.nodes[node].entry, error);
                    }
                }
                if is_end {
                    self.ended(node);
                }
            }
            Done::Acted { entry, above, node, outcome } => self.acted(&entry, above, node, outcome),
        }
    }

    /// One of the steps that a directory waits for has ended.
    fn ended(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.pending -= 1;
        if node.pending > 0 {
            return;
        }
        let (entry, above) = (node.entry.clone(), node.above);
        if node.failed {
            // It cannot be acted on, but what was found in it counts.
            self.close(&entry, above, Some(at), false);
        } else {
            self.ready.push(Step::Act { entry, above, node: Some(at) });
        }
    }

    fn acted(
        &mut self,
        entry: &Entry,
        above: Option<usize>,
        node: Option<usize>,
        outcome: Result<()>,
    ) {
        match outcome {
            Ok(()) => self.close(entry, above, node, true),
            Err(error) => {
                if let Some(at) = node.filter(|_| error.kind() == ErrorKind::NotEmpty)
                    && self.nodes[at].rounds < ROUNDS
                {
                    self.nodes[at].rounds += 1;
                    self.nodes[at].pending = 1;
                    return self.ready.push(Step::List(at, entry.clone()));
                }
                self.clean = false;
                self.visitor.failed(entry, error);
                self.close(entry, above, node, false);
            }
        }
    }

    fn close(&mut self, entry: &Entry, above: Option<usize>, node: Option<usize>, good: bool) {
        let (below, depth) = match node {
            Some(at) => {
                self.free.push(at);
                (std::mem::take(&mut self.nodes[at].sum), self.nodes[at].depth)
            }
            None => (V::Sum::default(), above.map_or(0, |above| self.nodes[above].depth + 1)),
        };
        let counts = self.visitor.done(entry, depth, below, good);
        let Some(above) = above else { return };
        self.nodes[above].sum += counts;
        self.nodes[above].failed |= !good;
        self.ended(above);
    }
}
