//! Decides which twins are copied, in rounds: a name that does not exist at the destination has to be copied
//! before the next name like it can be compared with it. Names that all exist take two rounds, and so do names
//! that the destination refuses, so the number of like names does not multiply the listings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, StorageExt};

use super::directory::Directory;
use super::twins;
use crate::collision::Sibling;
use crate::context::Context;
use crate::job::NumberedJob;

/// Twins that are looked up at the destination at once.
const LOOKS: usize = 64;

/// An entry of the source that waits because of its name.
#[derive(Debug)]
pub struct Twin {
    /// The entry.
    pub source: Entry,
    /// Where it goes.
    pub destination: RelPath,
    /// Its name as the least discerning file system would see it.
    pub folded: Vec<u8>,
    /// Keeps the directory that it goes into from being finished.
    pub directory: Arc<Directory>,
}

/// The twins of one directory that wait, with what is known of it.
#[derive(Debug)]
pub struct Group {
    /// The destination's directory.
    pub directory: RelPath,
    twins: Vec<Twin>,
    /// Names of the source and of earlier sources, by folded name.
    siblings: HashMap<Vec<u8>, Vec<Sibling>>,
    /// What the destination lists of such names, by folded name.
    listed: HashMap<Vec<u8>, HashSet<RelPath>>,
    /// Whether it may list more by now.
    is_stale: bool,
    /// Folded names of which one was refused: the others of them are looked at all at once.
    refused: HashSet<Vec<u8>>,
}

/// What is to be done with twins.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// The destination tells them from their siblings.
    pub copied: Vec<Twin>,
    /// Of those that are not copied: why.
    pub refused: Vec<Error>,
}

impl Group {
    /// Groups twins by the directory that they go into.
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

    /// Whether all twins have their verdict.
    pub fn is_empty(&self) -> bool {
        self.twins.is_empty()
    }

    /// Leaves the twins without a verdict, after an error of the directory: the errors of each.
    pub fn give_up(&mut self, job: &NumberedJob) -> Vec<Error> {
        let error = |twin: Twin| {
            let cause = "the destination may not distinguish its name from others; not copied";
            let name = job.destination_name(&twin.destination);
            Error::new(ErrorKind::Other, "copy").at(name).because(cause)
        };
        std::mem::take(&mut self.twins).into_iter().map(error).collect()
    }

    /// What the names in it may be confused with. Asked for once.
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

    /// The verdicts that are possible now, when everything that was planned before is done.
    ///
    /// # Errors
    ///
    /// Those of listing.
    pub async fn verdicts(&mut self, job: &NumberedJob) -> Result<Verdicts> {
        let destination = &*job.job.destination;
        let fail = |twin: &Twin, error: Error| error.at(job.destination_name(&twin.destination));
        let mut looked = stream::iter(self.ready())
            .map(async |twin| (destination.find(&twin.destination).await, twin))
            .buffered(LOOKS);
        let mut verdicts = Verdicts::default();
        let mut there = Vec::new();
        // Folded names of which one that was not there is copied now.
        let mut copied = HashSet::new();
        while let Some((found, twin)) = looked.next().await {
            match found {
                Ok(Some(found)) => there.push((twin, found)),
                Ok(None) if !copied.insert(twin.folded.clone()) => self.twins.push(twin),
                Ok(None) => verdicts.copied.push(twin),
                Err(error) => verdicts.refused.push(fail(&twin, error)),
            }
        }
        if !there.is_empty() && self.is_stale {
            let names = there.iter().map(|(twin, _)| twin).chain(&self.twins);
            let names: Vec<&RelPath> = names.map(|twin| &twin.destination).collect();
            self.listed = twins::listed_like(destination, &self.directory, &names).await?;
            self.is_stale = false;
        }
        let (siblings, listed) = (&self.siblings, &self.listed);
        let none = HashSet::new();
        let looked = there.into_iter().map(async |(twin, found)| {
            let siblings = siblings.get(&twin.folded).map_or(&[][..], Vec::as_slice);
            let listed = listed.get(&twin.folded).unwrap_or(&none);
            let collision = twins::collision(destination, &found, siblings, listed).await;
            (collision, twin)
        });
        let mut looked = stream::iter(looked).buffered(LOOKS);
        while let Some((collision, twin)) = looked.next().await {
            match collision {
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

    /// Takes those out that can be looked at now: the first of each folded name, those that the destination
    /// lists, and all of a folded name of which one was refused.
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
