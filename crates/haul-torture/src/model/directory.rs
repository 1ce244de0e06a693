//! The model of directories: creating and finishing them, conflicts with other entries, and `--delete`.

use std::collections::BTreeSet;

use haul_storage::is_part_name;

use super::{Model, SET_ID, UMASK, Want};
use crate::options::Overwrite;
use crate::rule::Rule;
use crate::tree::{Attributes, Kind, Name, base, is_below, parent};

impl Model<'_> {
    /// Models the copy of a source directory with everything below it. Files are deferred to `self.files`.
    pub(super) fn directory(&mut self, name: &[u8]) {
        let fresh = match self.wanted.tree.get(name).map(|want| want.kind.clone()) {
            None => true,
            Some(Some(Kind::Directory)) => false,
            Some(_) if self.options.delete => {
                if self.options.overwrite == Overwrite::Never {
                    self.rule(name, Rule::DeleteMakesRoom);
                    self.keep_in_place_of_directory(name);
                }
                self.remove_one(name);
                true
            }
            Some(_) => {
                self.rule(name, Rule::NoRoomWithoutDelete);
                if self.options.overwrite == Overwrite::Never {
                    self.keep_in_place_of_directory(name);
                }
                self.fail(name, "something else is where a directory is needed");
                return;
            }
        };
        if fresh {
            let made = self.fresh_directory(name);
            self.wanted.tree.insert(name.to_vec(), made);
        }
        let existing = self.before.0.get(name).filter(|node| node.kind == Kind::Directory);
        let nodes = [existing, self.source.0.get(name)];
        let is_read_only = nodes.into_iter().flatten().any(|node| node.mode & 0o200 == 0);
        if self.runner.user != 0 && is_read_only {
            self.rule(name, Rule::ReadOnlyDirectories);
        }
        if !self.options.preserve.mode {
            self.rule(name, if fresh { Rule::NewMode } else { Rule::AttributesBringModes });
        }
        let source = self.source;
        for child in source.children(name) {
            let node = &source.0[child];
            if is_part_name(base(child)) {
                self.rule(child, Rule::OwnNames);
                continue;
            }
            if !self.options.filter.takes(child, node.kind == Kind::Directory) {
                continue;
            }
            match &node.kind {
                Kind::Directory => self.directory(child),
                Kind::File { .. } => {
                    if self.room(child) {
                        self.files.push(child.clone());
                    }
                }
                Kind::Link(target) => self.link(child, target),
                Kind::Special => {}
            }
        }
        if self.options.delete && !fresh {
            self.delete_extra(name);
        }
        self.finish_directory(name);
    }

    /// A directory as it is created, before it is finished.
    pub(super) fn fresh_directory(&mut self, name: &[u8]) -> Want {
        let (user, group) = self.creator(name);
        let token = self.token();
        Want {
            kind: Some(Kind::Directory),
            mode: self.keeps.mode.then_some(0o777 & !UMASK),
            mode_open: 0o2000,
            user,
            group,
            time: None,
            exact_time: None,
            attributes: Some(Attributes::new()),
            token,
            links_open: false,
        }
    }

    /// User and group of a new entry at `name`, if the owner is not preserved; `None` is not compared. A new entry
    /// inherits the group of a directory with set-group-ID, and whether the directory has the bit at that moment
    /// depends on the order.
    pub(super) fn creator(&self, name: &[u8]) -> (Option<u32>, Option<u32>) {
        if !self.keeps.owner {
            return (None, None);
        }
        let mut inherits = false;
        let mut directory = parent(name);
        // A new directory inherits the bit from its parent, until it gets its mode.
        loop {
            // An entry of another type is replaced by a directory.
            let existing = self.before.0.get(directory);
            let existing = existing.filter(|node| node.kind == Kind::Directory);
            inherits |= existing
                .into_iter()
                .chain(self.source.0.get(directory))
                .any(|node| node.mode & 0o2000 != 0);
            if existing.is_some() || directory.is_empty() {
                break;
            }
            directory = parent(directory);
        }
        (Some(self.runner.user), (!inherits).then_some(self.runner.group))
    }

    /// Sets the metadata of a directory after everything in it is done.
    pub(super) fn finish_directory(&mut self, name: &[u8]) {
        let node = &self.source.0[name];
        let preserve = self.options.preserve;
        let time =
            (preserve.times && self.keeps.directory_times).then(|| self.keeps.time(node.time));
        let Some(want) = self.wanted.tree.get_mut(name) else { return };
        want.time = time;
        if preserve.owner && self.keeps.owner && self.runner.user == 0 {
            want.user = Some(node.owner.0);
            want.group = Some(node.owner.1);
        }
        if preserve.mode && self.keeps.mode {
            want.mode = Some(node.mode);
            want.mode_open = 0;
            if !preserve.owner {
                want.mode_open = SET_ID;
            }
        }
        if preserve.xattrs && self.keeps.xattrs {
            want.attributes = Some(node.attributes.clone());
        }
    }

    /// Makes room for a file or link at `name`. Returns false if a directory stays in the way.
    pub(super) fn room(&mut self, name: &[u8]) -> bool {
        let is_directory =
            self.wanted.tree.get(name).is_some_and(|want| want.kind == Some(Kind::Directory));
        if !is_directory {
            return true;
        }
        if !self.options.delete {
            self.rule(name, Rule::NoRoomWithoutDelete);
            self.fail(name, "a directory is where something else is to go");
            return false;
        }
        if self.options.overwrite == Overwrite::Never {
            self.rule(name, Rule::DeleteMakesRoom);
        }
        if self.has_no_room_for_link(name) {
            self.rule(name, Rule::NoRoomForLinks);
        }
        if self.remove(name) {
            return true;
        }
        self.fail(name, "the directory in the way has something excluded in it");
        false
    }

    /// Whether rsync keeps the direct entries of a directory in the way of a link (see [`Rule::NoRoomForLinks`]).
    fn has_no_room_for_link(&self, name: &[u8]) -> bool {
        let node = &self.source.0[name];
        let is_link = match node.kind {
            Kind::Link(_) => true,
            // Which of a file's names are linked to another depends on the order.
            Kind::File { .. } => self.is_grouped(node),
            Kind::Directory | Kind::Special => false,
        };
        is_link && self.gets_writable(name) && self.before.children(name).next().is_some()
    }

    /// Whether rsync has to make an existing entry writable before it removes it or something in it.
    fn gets_writable(&self, name: &[u8]) -> bool {
        let node = self.before.0.get(name);
        self.runner.user != 0 && node.is_some_and(|node| node.mode & 0o200 == 0)
    }

    /// Removes one entry.
    fn remove_one(&mut self, name: &[u8]) {
        let removed = self.wanted.tree.remove(name);
        let is_directory = removed.is_some_and(|want| want.kind == Some(Kind::Directory));
        if !is_directory && self.gets_writable(name) {
            self.rule(name, Rule::RemovedNamesGetWritable);
        }
    }

    /// Whether the source has an included entry of this name. Its type matters: `--exclude=build/` excludes `build`
    /// only if it is a directory.
    fn has_source(&self, name: &[u8]) -> bool {
        let node = self.source.0.get(name);
        node.is_some_and(|node| self.options.filter.takes(name, node.kind == Kind::Directory))
    }

    /// Removes the entries of a destination directory that the source does not have (`--delete`).
    pub(super) fn delete_extra(&mut self, directory: &[u8]) {
        let extra: Vec<Name> = self
            .wanted
            .tree
            .keys()
            .filter(|name| !name.is_empty() && parent(name) == directory)
            .filter(|name| !self.has_source(name))
            .cloned()
            .collect();
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
                self.remove(&name);
            }
        }
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
