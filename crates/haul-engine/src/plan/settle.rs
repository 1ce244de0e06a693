//! Decides in rounds which twins (see `twins.rs`) are copied: a name that does not exist at the destination has
//! to be copied before the next one that folds to the same name can be compared with it. If all names exist, or
//! the destination does not distinguish them, two rounds suffice: even many such names need few listings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, StorageExt};

use super::directory::Directory;
use super::twins;
use crate::collision::Sibling;
use crate::context::Context;
use crate::job::NumberedJob;

/// Maximum number of twins looked up at the destination at once.
const CONCURRENT_LOOKUPS: usize = 64;

/// An entry of the source that waits because the destination may not distinguish its name from another one.
#[derive(Debug)]
pub struct Twin {
    /// The entry.
    pub source: Entry,
    /// Its path at the destination.
    pub destination: RelPath,
    /// Its folded name, see [`fold`](super::folded::fold).
    pub folded: Vec<u8>,
    /// The directory that it is copied into, which is not finished before the twin is dropped.
    pub directory: Arc<Directory>,
}

/// The waiting twins of one directory, with what is known about the directory.
#[derive(Debug)]
pub struct Group {
    /// The destination's directory.
    pub directory: RelPath,
    twins: Vec<Twin>,
    /// Names of the source and of earlier sources, by folded name.
    siblings: HashMap<Vec<u8>, Vec<Sibling>>,
    /// Paths that the destination lists for these names, by folded name.
    listed: HashMap<Vec<u8>, HashSet<RelPath>>,
    /// Whether `listed` is out of date.
    is_stale: bool,
    /// Folded names with a refused twin: all further twins with such a name are looked up together.
    refused: HashSet<Vec<u8>>,
}

/// Which twins are copied, and which are not.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// Twins that the destination distinguishes from their siblings.
    pub copied: Vec<Twin>,
    /// The errors of the others.
    pub refused: Vec<Error>,
}

impl Group {
    /// Groups twins by the directory that they are copied into.
    pub fn all(twins: Vec<Twin>) -> Vec<Self> {
        let mut groups: BTreeMap<RelPath, Vec<Twin>> = BTreeMap::new();
        for twin in twins {
            let directory = twin.destination.parent().unwrap_or_default();
            groups.entry(directory).or_default().push(twin);
        }
        let group = |(directory, twins)| Self {
            directory,
            twins,
            siblings: HashMap::new(),
            listed: HashMap::new(),
            is_stale: true,
            refused: HashSet::new(),
        };
        groups.into_iter().map(group).collect()
    }

    /// Whether all twins have a verdict.
    pub fn is_empty(&self) -> bool {
        self.twins.is_empty()
    }

    /// Drops the remaining twins after an error of the directory, and returns an error for each.
    pub fn abandon(&mut self, job: &NumberedJob) -> Vec<Error> {
        let error = |twin: Twin| {
            let cause = "the destination may not distinguish its name from others; not copied";
            let name = job.destination_name(&twin.destination);
            Error::new(ErrorKind::Other, "copy").at(name).because(cause)
        };
        std::mem::take(&mut self.twins).into_iter().map(error).collect()
    }

    /// The paths that the destination may not distinguish from those of the twins. Looked up once.
    ///
    /// # Errors
    ///
    /// Those of listing.
    pub async fn siblings(
        &mut self,
        context: &Context,
        job: &NumberedJob,
    ) -> Result<HashSet<&RelPath>> {
        let source = self.twins.first().and_then(|twin| twin.source.path.parent());
        if let (true, Some(source)) = (self.siblings.is_empty(), source) {
            let names = self.names();
            self.siblings = twins::siblings(context, job, &source, &self.directory, &names).await?;
        }
        Ok(self.siblings.values().flatten().map(|sibling| &sibling.destination).collect())
    }

    fn names(&self) -> Vec<&RelPath> {
        self.twins.iter().map(|twin| &twin.destination).collect()
    }

    /// The verdicts that are possible now. Everything planned before must be done. `moves`: files may have been removed
    /// from the source since, so that not all siblings are known.
    ///
    /// # Errors
    ///
    /// Those of listing.
    pub async fn verdicts(&mut self, job: &NumberedJob, moves: bool) -> Result<Verdicts> {
        let destination = &*job.job.destination;
        let fail = |twin: &Twin, error: Error| error.at(job.destination_name(&twin.destination));
        let mut looked = stream::iter(self.ready())
            .map(async |twin| (destination.find(&twin.destination).await, twin))
            .buffered(CONCURRENT_LOOKUPS);
        let mut verdicts = Verdicts::default();
        let mut existing = Vec::new();
        // Folded names with a twin that does not exist at the destination and is copied in this round.
        let mut copied = HashSet::new();
        while let Some((found, twin)) = looked.next().await {
            match found {
                Ok(Some(found)) => existing.push((twin, found)),
                Ok(None) if !copied.insert(twin.folded.clone()) => self.twins.push(twin),
                Ok(None) => verdicts.copied.push(twin),
                Err(error) => verdicts.refused.push(fail(&twin, error)),
            }
        }
        if !existing.is_empty() && self.is_stale {
            let names = existing.iter().map(|(twin, _)| twin).chain(&self.twins);
            let names: Vec<&RelPath> = names.map(|twin| &twin.destination).collect();
            self.listed = twins::listed_like(destination, &self.directory, &names).await?;
            self.is_stale = false;
        }
        let (siblings, listed) = (&self.siblings, &self.listed);
        let none = HashSet::new();
        let looked = existing.into_iter().map(async |(twin, found)| {
            let siblings = siblings.get(&twin.folded).map_or(&[][..], Vec::as_slice);
            let listed = listed.get(&twin.folded).unwrap_or(&none);
            let collision = twins::collision(destination, &found, siblings, listed).await;
            // A sibling that was moved is a listed name of its own, unless the destination takes the two for one.
            let is_apart = listed.len() > 1 && listed.contains(&twin.destination);
            (collision, twin, moves && !found.is_dir() && !is_apart)
        });
        let mut looked = stream::iter(looked).buffered(CONCURRENT_LOOKUPS);
        while let Some((collision, twin, may_be_moved)) = looked.next().await {
            match collision {
                Ok(None) if may_be_moved => {
                    let cause = "the destination may treat this name as that of another file, which was moved; \
                                 it would be replaced";
                    let error = Error::new(ErrorKind::AlreadyExists, "move").because(cause);
                    verdicts.refused.push(fail(&twin, error));
                }
                Ok(None) => verdicts.copied.push(twin),
                Ok(Some(sibling)) => {
                    verdicts.refused.push(twins::refusal(job, &twin.destination, sibling));
                    self.refused.insert(twin.folded);
                }
                Err(error) => verdicts.refused.push(fail(&twin, error)),
            }
        }
        self.is_stale |= !copied.is_empty();
        self.refused.retain(|folded| !copied.contains(folded));
        Ok(verdicts)
    }

    /// Takes out the twins that can be looked up now: the first of each folded name, those that the
    /// destination lists, and all that share their folded name with a refused twin.
    fn ready(&mut self) -> Vec<Twin> {
        let mut seen = HashSet::new();
        let (listed, refused) = (&self.listed, &self.refused);
        let (ready, later) = self.twins.drain(..).partition(|twin| {
            let is_first = seen.insert(twin.folded.clone());
            let is_listed = || {
                listed.get(&twin.folded).is_some_and(|listed| listed.contains(&twin.destination))
            };
            is_first || refused.contains(&twin.folded) || is_listed()
        });
        self.twins = later;
        ready
    }
}
