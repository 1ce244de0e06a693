//! Models what rsync does with an entry that stays in the place of a source directory because of `--ignore-existing`.
//! If it is a symbolic link to a directory in the destination, rsync copies the source directory into that one, and
//! with `--delete` removes from it the entries that the source directory does not have. haul never follows such a link.
//!
//! Which entries rsync finds in such a directory depends on the order in which it visits them.
//! [`Rule::ThroughKeptLink`] is noted at all names that may differ.

use std::collections::{BTreeMap, BTreeSet};

use super::Model;
use crate::rule::Rule;
use crate::tree::{Kind, Name, Node, base, is_below, join, parent};

/// More links in one path are an error for rsync, as for Linux.
const MOST_LINKS: usize = 40;

/// A source directory, and the directory of the destination to which rsync copies it.
type Redirected = (Name, Name);

/// Entries that rsync makes through links, with the kinds that they may have.
#[derive(Default)]
struct Made<'a>(BTreeMap<Name, Vec<&'a Kind>>);

impl<'a> Made<'a> {
    fn add(&mut self, name: &[u8], kind: &'a Kind) {
        let kinds = self.0.entry(name.to_vec()).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }

    fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

impl<'a> Model<'a> {
    /// Notes that rsync keeps the entry at `name`, where the source has a directory.
    pub(super) fn keep_in_place_of_directory(&mut self, name: &[u8]) {
        // If rsync 3.5.0 cannot look up one name of a hard-linked file, it waits at the next name for that one to be
        // copied, which never happens.
        let mut below = self.source.below(name).map(|other| &self.source.0[other]);
        self.wanted.rsync_may_hang |= below.any(|node| self.is_grouped_file(node));
        if self.before.0.get(name).is_some_and(|node| matches!(node.kind, Kind::Link(_))) {
            self.kept_links.push(name.to_vec());
        }
    }

    fn is_grouped_file(&self, node: &Node) -> bool {
        matches!(node.kind, Kind::File { .. }) && self.is_grouped(node)
    }

    /// Notes what rsync copies and deletes through the links that it keeps in the place of directories.
    pub(super) fn follow_kept_links(&mut self) {
        let links = std::mem::take(&mut self.kept_links);
        let mut made = Made::default();
        loop {
            let count = made.count();
            let mut done: BTreeSet<Redirected> = BTreeSet::new();
            let mut pending: Vec<Redirected> = Vec::new();
            for name in &links {
                pending.extend(self.led_elsewhere(name, name, &made));
            }
            while let Some(pair) = pending.pop() {
                if done.insert(pair.clone()) {
                    self.redirected(&pair, &mut made, &mut pending);
                }
            }
            // A link that led nowhere may lead to an entry that rsync has made.
            if made.count() == count {
                return;
            }
        }
    }

    /// The other directories to which rsync copies the source directory `from` if it finds a link at `link`.
    fn led_elsewhere(&self, from: &[u8], link: &[u8], made: &Made<'a>) -> Vec<Redirected> {
        let found = self.resolve(parent(link), base(link), made).into_iter();
        found.filter(|to| to != link).map(|to| (from.to_vec(), to)).collect()
    }

    /// Notes what may change when rsync copies the source directory `from` into the directory `to`.
    fn redirected(
        &mut self,
        (from, to): &Redirected,
        made: &mut Made<'a>,
        pending: &mut Vec<Redirected>,
    ) {
        let (source, before, delete) = (self.source, self.before, self.options.delete);
        // The time of the directory itself may change, too.
        self.rule(to, Rule::ThroughKeptLink);
        if delete {
            self.rule_below(to);
        }
        for child in source.children(from) {
            let (copy, kind) = (join(to, base(child)), &source.0[child].kind);
            // Other names of a copied file may be linked to it.
            self.rule(child, Rule::ThroughKeptLink);
            self.rule(&copy, Rule::ThroughKeptLink);
            // The copy may be in the way of the source's own entry of that name.
            self.rule_below(&copy);
            if delete || !before.0.contains_key(&copy) {
                made.add(&copy, kind);
            }
            if *kind == Kind::Directory {
                let found = self.resolve(to, base(child), made);
                pending.extend(found.into_iter().map(|to| (child.clone(), to)));
            } else if source.0.get(&copy).is_some_and(|node| node.kind == Kind::Directory) {
                pending.extend(self.led_elsewhere(&copy, &copy, made));
            }
        }
    }

    fn rule_below(&mut self, directory: &[u8]) {
        let names = self.before.0.keys().chain(self.source.0.keys());
        for name in names.filter(|name| is_below(name, directory)) {
            self.rule(name, Rule::ThroughKeptLink);
        }
    }

    /// The directories to which `path`, seen from `directory`, may lead while rsync runs; none if it leads nowhere or
    /// out of the destination, where rsync does not follow it.
    fn resolve(&self, directory: &[u8], path: &[u8], made: &Made<'a>) -> BTreeSet<Name> {
        let mut found = BTreeSet::new();
        let mut visited = BTreeSet::new();
        let mut pending = vec![(directory.to_vec(), components(path), 0)];
        while let Some((at, mut rest, links)) = pending.pop() {
            if links > MOST_LINKS || !visited.insert((at.clone(), rest.clone())) {
                continue;
            }
            let Some(component) = rest.pop() else {
                found.insert(at);
                continue;
            };
            if component == b".." {
                if !at.is_empty() {
                    pending.push((parent(&at).to_vec(), rest, links));
                }
                continue;
            }
            let next = join(&at, &component);
            for kind in self.kinds_during(&next, made) {
                match kind {
                    Kind::Directory => pending.push((next.clone(), rest.clone(), links)),
                    Kind::Link(target) if !target.starts_with(b"/") => {
                        let mut longer = rest.clone();
                        longer.extend(components(target));
                        pending.push((at.clone(), longer, links + 1));
                    }
                    Kind::Link(_) | Kind::File { .. } | Kind::Special => {}
                }
            }
        }
        found
    }

    /// The kinds of entry that may be at `name` while rsync runs.
    fn kinds_during(&self, name: &[u8], made: &Made<'a>) -> Vec<&'a Kind> {
        let before = self.before.0.get(name).map(|node| &node.kind);
        let mut kinds: Vec<&Kind> = before.into_iter().collect();
        // An existing entry stays, unless it is deleted.
        if kinds.is_empty() || self.options.delete {
            kinds.extend(self.source.0.get(name).map(|node| &node.kind));
            kinds.extend(made.0.get(name).into_iter().flatten());
        }
        kinds
    }
}

/// The components of a path, the last one first.
fn components(path: &[u8]) -> Vec<Name> {
    let parts = path.split(|byte| *byte == b'/').rev();
    parts.filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect()
}
