//! The model of directories: creating and finishing them, and conflicts with other entries.

use haul_storage::is_part_name;

use super::acl::{follow_mode, mode_with_attributes};
use super::{Model, SET_ID, UMASK, Want};
use crate::options::Overwrite;
use crate::rule::Rule;
use crate::tree::{Attributes, Kind, base, parent};

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
        if self.is_unlisted(name) {
            self.has_unlisted = true;
            self.fail(name, "the directory cannot be listed");
            self.rule(name, Rule::UnlistedDirectories);
            let preserve = self.options.preserve;
            let mut names = source.0[name].attributes.keys();
            if preserve.xattrs && self.keeps.xattrs && names.any(|name| name.starts_with(b"user."))
            {
                // Its attributes cannot be read, and it does not get a mode without its ACL.
                if let Some(want) = self.wanted.tree.get_mut(name).filter(|_| fresh) {
                    want.mode = None;
                }
                return;
            }
            self.finish_directory(name);
            return;
        }
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
            self.on_both.push(name.to_vec());
        }
        self.finish_directory(name);
    }

    /// Whether the user may not list a directory of the source, which belongs to the user.
    fn is_unlisted(&self, name: &[u8]) -> bool {
        self.runner.user != 0 && self.source.0[name].mode & 0o400 == 0
    }

    /// A directory as it is created, before it is finished.
    pub(super) fn fresh_directory(&mut self, name: &[u8]) -> Want {
        let (user, group) = self.creator(name);
        let token = self.token();
        let inherits = self.inherits_acl(name);
        Want {
            kind: Some(Kind::Directory),
            mode: (self.keeps.mode && !inherits).then_some(0o777 & !UMASK),
            mode_open: 0o2000,
            user,
            group,
            time: None,
            exact_time: None,
            attributes: (!inherits).then(Attributes::new),
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
            if !preserve.mode {
                want.mode = mode_with_attributes(want.mode, want.attributes.as_ref(), node);
            }
            want.attributes = Some(node.attributes.clone());
        } else if preserve.mode && self.keeps.mode {
            follow_mode(want);
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
        if self.options.deletion.limit.is_some() {
            self.fail(name, "--max-delete protects the directory in the way");
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
    pub(super) fn gets_writable(&self, name: &[u8]) -> bool {
        let node = self.before.0.get(name);
        self.runner.user != 0 && node.is_some_and(|node| node.mode & 0o200 == 0)
    }

    /// Removes one entry.
    pub(super) fn remove_one(&mut self, name: &[u8]) {
        let removed = self.wanted.tree.remove(name);
        let is_directory = removed.is_some_and(|want| want.kind == Some(Kind::Directory));
        if !is_directory && self.gets_writable(name) {
            self.rule(name, Rule::RemovedNamesGetWritable);
        }
    }
}
