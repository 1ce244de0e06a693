//! The model of files and links: left, kept, adjusted or replaced, alone or with their other hard links.

use super::acl::{follow_mode, mode_with_attributes, without_acl};
use super::{Model, SET_ID, Token, UMASK, Verdict, Want};
use crate::options::Overwrite;
use crate::rule::Rule;
use crate::tree::{Attributes, Kind, Name};

impl Model<'_> {
    pub(super) fn verdict(&self, name: &[u8], how: Overwrite) -> Verdict {
        let Some(old) = self.wanted.tree.get(name) else { return Verdict::New };
        let node = &self.source.0[name];
        let (Some(Kind::File { size, .. }), Kind::File { size: source_size, .. }) =
            (&old.kind, &node.kind)
        else {
            return if how == Overwrite::Never { Verdict::Leave } else { Verdict::Replace };
        };
        // The run has not replaced this file yet, so its time is still the one in `before`.
        let old_time = self.before.0.get(name).map_or(node.time, |before| before.time);
        let (theirs, ours) = (self.keeps.time(old_time), self.keeps.time(node.time));
        match how {
            Overwrite::Never => Verdict::Leave,
            Overwrite::Always => Verdict::Replace,
            Overwrite::Newer if ours > theirs && self.keeps.times => Verdict::Replace,
            Overwrite::Newer => Verdict::Leave,
            Overwrite::Different
                if size == source_size && (ours == theirs || !self.keeps.times) =>
            {
                if self.gets_privileges(name) { Verdict::Replace } else { Verdict::Keep }
            }
            Overwrite::Different => Verdict::Replace,
        }
    }

    /// Whether another user's file would get set-ID bits or capabilities.
    fn gets_privileges(&self, name: &[u8]) -> bool {
        let preserve = self.options.preserve;
        let (node, old) = (&self.source.0[name], self.before.0.get(name));
        let is_other = old.is_some_and(|old| old.owner != node.owner);
        let has_bits = preserve.mode && self.keeps.mode && node.mode & SET_ID != 0;
        let has_capability = preserve.xattrs
            && self.keeps.xattrs
            && node.attributes.contains_key(&b"security.capability"[..]);
        preserve.owner
            && self.keeps.owner
            && self.runner.user == 0
            && is_other
            && (has_bits || has_capability)
    }

    /// Notes where rsync's overwrite mode behaves differently.
    pub(super) fn overwrite_rules(&mut self, name: &[u8], verdict: Verdict) {
        let has_names = self.before.0.get(name).is_some_and(|old| old.links > 1);
        if verdict == Verdict::Leave && has_names {
            self.rule(name, Rule::LeftNamesStay);
        }
        if verdict == Verdict::Replace && self.gets_privileges(name) {
            self.rule(name, Rule::PrivilegesAreCopied);
        }
        let (node, old) = (self.source.0.get(name), self.before.0.get(name));
        if let Some((node, old)) = node.zip(old)
            && node.time != old.time
            && self.keeps.time(node.time) == self.keeps.time(old.time)
        {
            self.rule(name, Rule::CoarseClock);
        }
        if self.options.overwrite == Overwrite::Newer && verdict != Verdict::New {
            self.rule(name, Rule::NewerOnly);
        }
    }

    pub(super) fn file(&mut self, name: &[u8]) {
        let verdict = self.verdict(name, self.options.overwrite);
        self.overwrite_rules(name, verdict);
        match verdict {
            Verdict::Leave => {}
            Verdict::Keep => self.keep(name),
            Verdict::New | Verdict::Replace => {
                let token = self.token();
                self.put(name, token);
                self.wanted.copies += 1;
            }
        }
    }

    /// Models a copy of the source's file to `name`, as the file `token`.
    pub(super) fn put(&mut self, name: &[u8], token: Token) {
        let node = &self.source.0[name];
        let preserve = self.options.preserve;
        // The mode of the replaced file, which is open if the names of one file contradict each other.
        let usual = match self.wanted.tree.get(name) {
            Some(Want { kind: Some(Kind::File { .. }), mode, attributes, .. }) => {
                let mode = mode.filter(|_| !self.other_name_gets_attributes(name));
                without_acl(mode, attributes.as_ref()).map(|mode| mode & 0o777)
            }
            _ => Some(0o666 & !UMASK),
        };
        self.second_before_1970(name);
        let (user, group) = self.creator(name);
        let inherits = self.inherits_acl(name);
        let mut want = Want {
            kind: Some(node.kind.clone()),
            mode: usual.filter(|_| self.keeps.mode && !inherits),
            mode_open: 0,
            user,
            group,
            time: (preserve.times && self.keeps.times).then(|| self.keeps.time(node.time)),
            exact_time: Some(node.time),
            attributes: (!inherits).then(Attributes::new),
            token,
            links_open: false,
        };
        if preserve.owner && self.keeps.owner && self.runner.user == 0 {
            (want.user, want.group) = (Some(node.owner.0), Some(node.owner.1));
        }
        if preserve.mode && self.keeps.mode {
            want.mode = Some(self.file_mode(name));
        } else {
            self.rule(name, Rule::NewMode);
        }
        if preserve.xattrs && self.keeps.xattrs {
            if !preserve.mode {
                want.mode = mode_with_attributes(want.mode, want.attributes.as_ref(), node);
            }
            want.attributes = Some(self.file_attributes(name));
        }
        self.wanted.tree.insert(name.to_vec(), want);
    }

    /// Whether the existing file has another name that is up to date and gets attributes. With an ACL, they change the
    /// file's mode, and whether that comes first depends on the order.
    fn other_name_gets_attributes(&self, name: &[u8]) -> bool {
        let old = self.before.0.get(name).filter(|old| old.links > 1);
        let (Some(old), true) = (old, self.options.preserve.xattrs && self.keeps.xattrs) else {
            return false;
        };
        let mut others = self.before.0.iter().filter(|(_, other)| other.inode == old.inode);
        others.any(|(other, _)| {
            let source = self.source.0.get(other).map(|node| &node.kind);
            other.as_slice() != name
                && matches!(source, Some(Kind::File { .. }))
                && self.verdict(other, self.options.overwrite) == Verdict::Keep
        })
    }

    fn second_before_1970(&mut self, name: &[u8]) {
        if self.source.0[name].time.seconds == -1 {
            self.rule(name, Rule::SecondBefore1970);
        }
    }

    pub(super) fn file_mode(&mut self, name: &[u8]) -> u32 {
        let mode = self.source.0[name].mode;
        if self.options.preserve.owner || mode & SET_ID == 0 {
            return mode;
        }
        self.rule(name, Rule::SetIdNeedsOwner);
        mode & !SET_ID
    }

    pub(super) fn file_attributes(&self, name: &[u8]) -> Attributes {
        let mut attributes = self.source.0[name].attributes.clone();
        if !self.options.preserve.owner {
            attributes.remove(&b"security.capability"[..]);
        }
        attributes
    }

    /// Models a file at `name` whose content is up to date: its metadata is adjusted.
    pub(super) fn keep(&mut self, name: &[u8]) {
        let node = &self.source.0[name];
        let preserve = self.options.preserve;
        let mode = (preserve.mode && self.keeps.mode).then(|| self.file_mode(name));
        let owner =
            (preserve.owner && self.keeps.owner && self.runner.user == 0).then_some(node.owner);
        let attributes = (preserve.xattrs && self.keeps.xattrs).then(|| self.file_attributes(name));
        if preserve.xattrs && !preserve.mode {
            self.rule(name, Rule::AttributesBringModes);
        }
        let Some(token) = self.wanted.tree.get(name).map(|want| want.token) else { return };
        let contradicted = self.touched.insert(token, name.to_vec()).is_some();
        let names: Vec<Name> = self.names_of(token);
        let mut loses_set_id = Vec::new();
        for other in names {
            if contradicted {
                self.rule(&other, Rule::SharedDestination);
            }
            let Some(want) = self.wanted.tree.get_mut(&other) else { continue };
            if contradicted {
                (want.mode, want.user, want.group, want.attributes) = (None, None, None, None);
                continue;
            }
            if let Some(mode) = mode {
                want.mode = Some(mode);
                // Without `owner`, whether set-ID bits stay depends on the file's previous owner.
                if !preserve.owner {
                    want.mode_open = SET_ID;
                }
            }
            if let Some((user, group)) = owner {
                let is_other = (want.user, want.group) != (Some(user), Some(group));
                (want.user, want.group) = (Some(user), Some(group));
                if mode.is_none() && is_other && want.mode.is_some_and(|mode| mode & SET_ID != 0) {
                    want.mode = want.mode.map(|mode| mode & !SET_ID);
                    // The system keeps set-group-ID if the group may not execute the file.
                    want.mode_open = SET_ID & 0o2000;
                    loses_set_id.push(other.clone());
                }
            }
            if let Some(attributes) = &attributes {
                if mode.is_none() {
                    want.mode = mode_with_attributes(want.mode, want.attributes.as_ref(), node);
                }
                want.attributes = Some(attributes.clone());
            } else if mode.is_some() {
                follow_mode(want);
            }
        }
        for name in loses_set_id {
            self.rule(&name, Rule::SetIdGoesWithOwner);
        }
    }

    pub(super) fn names_of(&self, token: Token) -> Vec<Name> {
        let tree = self.wanted.tree.iter();
        tree.filter(|(_, want)| want.token == token).map(|(name, _)| name.clone()).collect()
    }

    /// Models the names of one file of the source.
    pub(super) fn group(&mut self, names: &[Name]) {
        let verdicts: Vec<Verdict> =
            names.iter().map(|name| self.verdict(name, self.options.overwrite)).collect();
        for (name, verdict) in names.iter().zip(&verdicts) {
            self.overwrite_rules(name, *verdict);
            // rsync may link a name that is up to date to one that it copies.
            self.second_before_1970(name);
            if self.options.preserve.xattrs && !self.options.preserve.mode {
                self.rule(name, Rule::AttributesBringModes);
            }
        }
        if verdicts.contains(&Verdict::Leave) {
            self.group_with_left(names, &verdicts);
            return;
        }
        let current = names.iter().zip(&verdicts).find(|(_, verdict)| **verdict == Verdict::Keep);
        let Some((first, _)) = current else {
            self.copy_group(names);
            return;
        };
        // All names become an existing file or a new one; which of them depends on the order.
        self.keep(first);
        let Some(mut want) = self.wanted.tree.get(first).cloned() else { return };
        let all_current = verdicts.iter().all(|verdict| *verdict == Verdict::Keep);
        let is_one = names
            .iter()
            .all(|name| self.wanted.tree.get(name).is_some_and(|other| other.token == want.token));
        // Other names of the old files may or may not stay linked, and their file may or may not be adjusted.
        for name in names {
            let Some(token) = self.wanted.tree.get(name).map(|want| want.token) else { continue };
            for other in self.names_of(token).iter().filter(|other| !names.contains(other)) {
                let Some(other) = self.wanted.tree.get_mut(other) else { continue };
                other.links_open = true;
                if !is_one {
                    (other.mode, other.user, other.group, other.attributes) =
                        (None, None, None, None);
                }
            }
        }
        if !is_one {
            let preserve = self.options.preserve;
            // Two files with the same size and compared time may differ all the same.
            let kinds = |name: &Name| self.wanted.tree.get(name).and_then(|want| want.kind.clone());
            let current =
                names.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Keep);
            let one_kind = { current }.all(|(name, _)| kinds(name) == want.kind);
            let source = &self.source.0[first];
            want.kind = want.kind.filter(|kind| one_kind && *kind == source.kind);
            let time = self.keeps.time(source.time);
            want.time = want.time.filter(|old| preserve.times && *old == time);
            want.mode = want.mode.filter(|_| preserve.mode);
            want.user = want.user.filter(|_| preserve.owner);
            want.group = want.group.filter(|_| preserve.owner);
            want.attributes = want.attributes.filter(|_| preserve.xattrs);
        }
        if !all_current {
            self.wanted.copies += 1;
        }
        for name in names {
            let old = self.wanted.tree.insert(name.clone(), want.clone());
            if let (Some(old), true) = (old, self.options.preserve.mode) {
                self.touched.entry(old.token).or_insert_with(|| name.clone());
            }
        }
    }

    /// Models the names of one file of the source, at least one of which is left as it is.
    fn group_with_left(&mut self, names: &[Name], verdicts: &[Verdict]) {
        // A name that is left and has the source's size and compared time counts as the same file, although its
        // content may differ.
        let left_differs = names.iter().zip(verdicts).any(|(name, verdict)| {
            let left = self.wanted.tree.get(name).and_then(|want| want.kind.clone());
            *verdict == Verdict::Leave
                && self.verdict(name, Overwrite::Different) == Verdict::Keep
                && left.is_some_and(|left| left != self.source.0[name].kind)
        });
        for (name, verdict) in names.iter().zip(verdicts) {
            self.rule(name, Rule::LeftNamesStay);
            if *verdict == Verdict::Leave {
                if let Some(want) = self.wanted.tree.get_mut(name) {
                    want.links_open = true;
                }
                continue;
            }
            let token = self.token();
            self.put(name, token);
            let Some(want) = self.wanted.tree.get_mut(name) else { continue };
            want.links_open = true;
            // It may now be a link to a file that was left unchanged, whose metadata is not compared.
            (want.mode, want.user, want.group, want.attributes) = (None, None, None, None);
            want.time = None;
            if left_differs {
                want.kind = None;
            }
        }
    }

    /// Copies a group of names, none of which is up to date at the destination.
    fn copy_group(&mut self, names: &[Name]) {
        let token = self.token();
        self.wanted.copies += 1;
        for name in names {
            self.put(name, token);
        }
        // Mode and group come from the file that the first of them replaces, and from the directory that it
        // is created in; which is first depends on the order.
        let all = |get: &dyn Fn(&Want) -> Option<u32>| {
            let of = |name: &Name| self.wanted.tree.get(name).and_then(get);
            names.iter().all(|name| of(name) == of(&names[0]))
        };
        let inherits = names
            .iter()
            .any(|name| self.wanted.tree.get(name).is_some_and(|want| want.attributes.is_none()));
        let (one_mode, one_group) = (all(&|want| want.mode), all(&|want| want.group));
        for name in names {
            if let Some(want) = self.wanted.tree.get_mut(name) {
                want.mode = want.mode.filter(|_| one_mode);
                want.group = want.group.filter(|_| one_group);
                want.attributes = want.attributes.take().filter(|_| !inherits);
            }
        }
    }

    pub(super) fn link(&mut self, name: &[u8], target: &[u8]) {
        if !self.keeps.symlinks {
            self.fail(name, "no symbolic links there");
            return;
        }
        if !self.room(name) {
            return;
        }
        let preserve = self.options.preserve;
        let same = self
            .wanted
            .tree
            .get(name)
            .is_some_and(|want| want.kind == Some(Kind::Link(target.to_vec())));
        if self.wanted.tree.contains_key(name) && self.options.overwrite == Overwrite::Never {
            return;
        }
        let node = &self.source.0[name];
        if !same {
            let (user, group) = self.creator(name);
            let token = self.token();
            let made = Want {
                kind: Some(node.kind.clone()),
                mode: None,
                mode_open: 0,
                user,
                group,
                time: None,
                exact_time: None,
                attributes: None,
                token,
                links_open: true,
            };
            self.wanted.tree.insert(name.to_vec(), made);
        }
        let time = (preserve.times && self.keeps.link_times).then(|| self.keeps.time(node.time));
        // An existing link with the same time, at the compared precision, keeps its own.
        let old_time = self.before.0.get(name).map(|old| self.keeps.time(old.time));
        let time = time.filter(|_| !same || time != old_time);
        let Some(want) = self.wanted.tree.get_mut(name) else { return };
        (want.mode, want.attributes, want.links_open) = (None, None, true);
        if time.is_some() {
            want.time = time;
        }
        if preserve.owner && self.keeps.owner && self.runner.user == 0 {
            (want.user, want.group) = (Some(node.owner.0), Some(node.owner.1));
        }
    }
}
