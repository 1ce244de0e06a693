//! The model of `--delete`: what a run removes after it has copied everything, and when it removes nothing.

use std::collections::BTreeSet;

use haul_storage::is_part_name;

use super::Model;
use crate::rule::Rule;
use crate::tree::{Kind, Name, base, is_below, parent};

impl Model<'_> {
    /// Removes what the source does not have from the directories that both sides had before the run, unless that is
    /// refused as a whole.
    pub(super) fn delete(&mut self) {
        let directories = std::mem::take(&mut self.on_both);
        let deletion = self.options.deletion;
        let copied = self.wanted.tree.clone();
        let entries = copied.keys().filter(|name| self.counts(name)).count();
        let mut has_extra = false;
        for directory in &directories {
            has_extra |= self.delete_extra(directory);
        }
        let removed = copied.len() - self.wanted.tree.len();
        let is_empty = self.source.children(b"").next().is_none();
        if self.has_unlisted && !deletion.ignore_errors {
            // rsync removes what it reaches before it notices the error.
            let stay = copied.keys().filter(|name| !self.wanted.tree.contains_key(*name));
            for name in stay.cloned().collect::<Vec<Name>>() {
                self.rule(&name, Rule::NoDeletionAfterErrors);
            }
        } else if deletion.limit.is_some_and(|limit| !limit.allows(removed, entries)) {
            self.fail(b"", "more than --max-delete would be removed");
        } else if has_extra && is_empty && !deletion.from_empty {
            self.fail(b"", "the source is empty");
        } else {
            return;
        }
        self.wanted.tree = copied;
    }

    /// Whether `--max-delete N%` counts an entry of the destination: neither it nor a directory above it is excluded.
    fn counts(&self, name: &[u8]) -> bool {
        if name.is_empty() || is_part_name(base(name)) {
            return false;
        }
        let kind = self.wanted.tree.get(name).and_then(|want| want.kind.as_ref());
        let mut is_directory = kind == Some(&Kind::Directory);
        let mut above = name;
        while !above.is_empty() {
            if !self.options.filter.takes(above, is_directory) {
                return false;
            }
            (above, is_directory) = (parent(above), true);
        }
        true
    }

    /// Whether the source has an included entry of this name. Its type matters: `--exclude=build/` excludes `build`
    /// only if it is a directory.
    fn has_source(&self, name: &[u8]) -> bool {
        let node = self.source.0.get(name);
        node.is_some_and(|node| self.options.filter.takes(name, node.kind == Kind::Directory))
    }

    /// Removes the entries of a destination directory that the source does not have. Returns true if there are any.
    fn delete_extra(&mut self, directory: &[u8]) -> bool {
        let extra: Vec<Name> = self
            .wanted
            .tree
            .keys()
            .filter(|name| !name.is_empty() && parent(name) == directory)
            .filter(|name| !self.has_source(name))
            .cloned()
            .collect();
        let mut has_extra = false;
        for name in extra {
            if is_part_name(base(&name)) {
                self.rule(&name, Rule::OwnNames);
                continue;
            }
            if self.runner.user != 0 {
                self.rule(&name, Rule::ReadOnlyDirectories);
            }
            let is_directory = self.wanted.tree[&name].kind == Some(Kind::Directory);
            if self.options.filter.takes(&name, is_directory) {
                has_extra = true;
                self.remove(&name);
            }
        }
        has_extra
    }

    /// Removes the entry at `name` and everything below it that is not excluded. Returns true if nothing
    /// is left.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let mut stays = BTreeSet::new();
        let below: Vec<Name> =
            self.wanted.tree.keys().filter(|other| is_below(other, name)).cloned().collect();
        // The keys are sorted, so a directory comes before its entries.
        for other in &below {
            let is_directory = self.wanted.tree[other].kind == Some(Kind::Directory);
            let taken = self.options.filter.takes(other, is_directory);
            let is_inside = stays.iter().any(|staying: &Name| is_below(other, staying));
            if !taken || is_inside {
                stays.insert(other.clone());
            }
        }
        for other in below.into_iter().chain([name.to_vec()]) {
            if stays.contains(&other) {
                continue;
            }
            if !stays.iter().any(|staying| is_below(staying, &other)) {
                self.remove_one(&other);
            } else if self.gets_writable(&other) {
                self.rule(&other, Rule::ReadOnlyDirectories);
            }
        }
        stays.is_empty()
    }
}
