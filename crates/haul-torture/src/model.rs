//! What haul promises: the tree that has to be at the destination after a run, computed from the trees
//! before it.
//!
//! The model knows nothing of how haul works. Where a result may depend on the order of things, or is
//! nobody's promise (the time of a directory from which something was removed), it leaves the field open.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use haul_storage::is_part_name;

use crate::options::{Options, Overwrite};
use crate::rule::Rule;
use crate::target::Keeps;
use crate::tree::{Attributes, Kind, Name, Node, Time, Tree, base, is_below, parent};

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// What has to be at one name. `None` is open.
#[derive(Debug, Clone)]
pub struct Want {
    /// Kind and content; open only where names of one file contradict each other.
    pub kind: Option<Kind>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Bits of `mode` that are not judged.
    pub mode_open: u32,
    /// User.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Modification time.
    pub time: Option<Time>,
    /// Extended attributes.
    pub attributes: Option<Attributes>,
    /// Wants with the same token are names of one file.
    pub token: Token,
    /// Whether it is judged with which other names it is one file.
    pub links_open: bool,
}

/// Identifies a file of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Token {
    /// One that was there before, by its inode.
    Old(u64),
    /// One that was made.
    New(u64),
}

/// What a run has to lead to.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The tree.
    pub tree: BTreeMap<Name, Want>,
    /// What cannot be done, and why: the run has to say so and to go on.
    pub failures: BTreeMap<Name, &'static str>,
    /// Where rsync may do something else, at these names and all below.
    pub rules: BTreeMap<Name, BTreeSet<Rule>>,
    /// Files whose content has to be moved (links of one file count once).
    pub copies: u64,
    /// Files of the source that take part, under all of their names.
    pub files: usize,
}

/// Who runs haul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner {
    /// Its user; 0 may do everything.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// The bits that umask takes away, in every run.
pub const UMASK: u32 = 0o022;

/// Computes what has to be there after a run of `options` from `source` to a destination with `before`.
pub fn wanted(
    source: &Tree,
    before: &Tree,
    options: &Options,
    keeps: &Keeps,
    runner: Runner,
) -> Wanted {
    let tree = before.0.iter().map(|(name, node)| (name.clone(), Want::of(node))).collect();
    let wanted = Wanted { tree, ..Wanted::default() };
    let mut model = Model {
        source,
        before,
        options,
        keeps,
        runner,
        wanted,
        files: Vec::new(),
        touched: HashMap::new(),
        next: 0,
    };
    model.run();
    model.wanted
}

impl Want {
    fn of(node: &Node) -> Self {
        Self {
            kind: Some(node.kind.clone()),
            mode: Some(node.mode),
            mode_open: 0,
            user: Some(node.owner.0),
            group: Some(node.owner.1),
            // A directory that is not finished by the run may still get or lose entries.
            time: (node.kind != Kind::Directory).then_some(node.time),
            attributes: Some(node.attributes.clone()),
            token: Token::Old(node.inode),
            links_open: false,
        }
    }
}

/// What becomes of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    New,
    Replace,
    Keep,
    Leave,
}

struct Model<'a> {
    source: &'a Tree,
    before: &'a Tree,
    options: &'a Options,
    keeps: &'a Keeps,
    runner: Runner,
    wanted: Wanted,
    files: Vec<Name>,
    /// Old files whose mode and the like were adjusted, with the source that they were adjusted to.
    touched: HashMap<Token, Name>,
    next: u64,
}

impl Model<'_> {
    fn run(&mut self) {
        self.directory(b"");
        let files = std::mem::take(&mut self.files);
        self.wanted.files = files.len();
        let mut groups: BTreeMap<u64, Vec<Name>> = BTreeMap::new();
        for name in files {
            let node = &self.source.0[&name];
            if self.options.preserve.links && self.keeps.hard_links && node.links > 1 {
                groups.entry(node.inode).or_default().push(name);
            } else {
                self.file(&name);
            }
        }
        for names in groups.into_values() {
            self.group(&names);
        }
        self.open_what_shares();
        self.spread_rules();
    }

    fn rule(&mut self, name: &[u8], rule: Rule) {
        self.wanted.rules.entry(name.to_vec()).or_default().insert(rule);
    }

    fn fail(&mut self, name: &[u8], why: &'static str) {
        self.wanted.failures.insert(name.to_vec(), why);
    }

    fn token(&mut self) -> Token {
        self.next += 1;
        Token::New(self.next)
    }

    fn directory(&mut self, name: &[u8]) {
        let fresh = match self.wanted.tree.get(name).map(|want| want.kind.clone()) {
            None => true,
            Some(Some(Kind::Directory)) => false,
            Some(_) if self.options.delete => {
                if self.options.overwrite == Overwrite::Never {
                    self.rule(name, Rule::DeleteMakesRoom);
                }
                self.wanted.tree.remove(name);
                true
            }
            Some(_) => {
                self.rule(name, Rule::NoRoomWithoutDelete);
                self.fail(name, "something else is where a directory is needed");
                return;
            }
        };
        if fresh {
            let made = self.fresh_directory(name);
            self.wanted.tree.insert(name.to_vec(), made);
        }
        let nodes = [self.before.0.get(name), self.source.0.get(name)];
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

    fn fresh_directory(&mut self, name: &[u8]) -> Want {
        let (user, group) = self.creator(name);
        let token = self.token();
        Want {
            kind: Some(Kind::Directory),
            mode: self.keeps.mode.then_some(0o777 & !UMASK),
            mode_open: 0o2000,
            user,
            group,
            time: None,
            attributes: Some(Attributes::new()),
            token,
            links_open: false,
        }
    }

    /// Who owns what is made at `name`, unless the owner is kept. The group of a directory with
    /// set-group-ID goes to what is made in it; whether it has the bit at that moment is open.
    fn creator(&self, name: &[u8]) -> (Option<u32>, Option<u32>) {
        if !self.keeps.owner {
            return (None, None);
        }
        let mut inherits = false;
        let mut directory = parent(name);
        // A new directory has the bit from the one that it is made in, until it gets its mode.
        loop {
            let there = self.before.0.get(directory);
            inherits |= there
                .into_iter()
                .chain(self.source.0.get(directory))
                .any(|node| node.mode & 0o2000 != 0);
            if there.is_some() || directory.is_empty() {
                break;
            }
            directory = parent(directory);
        }
        (Some(self.runner.user), (!inherits).then_some(self.runner.group))
    }

    fn finish_directory(&mut self, name: &[u8]) {
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

    /// Whether a file or link can get the name: no directory is in the way.
    fn room(&mut self, name: &[u8]) -> bool {
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
        if self.remove(name) {
            return true;
        }
        self.fail(name, "the directory in the way has something excluded in it");
        false
    }

    fn verdict(&self, name: &[u8], how: Overwrite) -> Verdict {
        let Some(there) = self.wanted.tree.get(name) else { return Verdict::New };
        let node = &self.source.0[name];
        let (Some(Kind::File { size, .. }), Kind::File { size: source_size, .. }) =
            (&there.kind, &node.kind)
        else {
            return if how == Overwrite::Never { Verdict::Leave } else { Verdict::Replace };
        };
        // Times that the model has left open are of directories only.
        let there_time = self.before.0.get(name).map_or(node.time, |before| before.time);
        let (theirs, ours) = (self.keeps.time(there_time), self.keeps.time(node.time));
        match how {
            Overwrite::Never => Verdict::Leave,
            Overwrite::Always => Verdict::Replace,
            Overwrite::Newer if ours > theirs && self.keeps.times => Verdict::Replace,
            Overwrite::Newer => Verdict::Leave,
            Overwrite::Different
                if size == source_size && (ours == theirs || !self.keeps.times) =>
            {
                Verdict::Keep
            }
            Overwrite::Different => Verdict::Replace,
        }
    }

    /// Notes where rsync's idea of the overwrite mode is another one.
    fn overwrite_rules(&mut self, name: &[u8], verdict: Verdict) {
        let (node, there) = (self.source.0.get(name), self.before.0.get(name));
        if let Some((node, there)) = node.zip(there)
            && node.time != there.time
            && self.keeps.time(node.time) == self.keeps.time(there.time)
        {
            self.rule(name, Rule::CoarseClock);
        }
        if self.options.overwrite == Overwrite::Newer && verdict != Verdict::New {
            self.rule(name, Rule::NewerOnly);
        }
    }

    fn file(&mut self, name: &[u8]) {
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

    /// The file of the source is at `name`, as `token`.
    fn put(&mut self, name: &[u8], token: Token) {
        let node = &self.source.0[name];
        let preserve = self.options.preserve;
        let replaced = self.wanted.tree.get(name).and_then(|there| match there.kind {
            Some(Kind::File { .. }) => there.mode,
            _ => None,
        });
        let (user, group) = self.creator(name);
        let mut want = Want {
            kind: Some(node.kind.clone()),
            mode: self.keeps.mode.then(|| replaced.map_or(0o666 & !UMASK, |mode| mode & 0o777)),
            mode_open: 0,
            user,
            group,
            time: (preserve.times && self.keeps.times).then(|| self.keeps.time(node.time)),
            attributes: Some(Attributes::new()),
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
            want.attributes = Some(self.file_attributes(name));
        }
        self.wanted.tree.insert(name.to_vec(), want);
    }

    fn file_mode(&mut self, name: &[u8]) -> u32 {
        let mode = self.source.0[name].mode;
        if self.options.preserve.owner || mode & SET_ID == 0 {
            return mode;
        }
        self.rule(name, Rule::SetIdNeedsOwner);
        mode & !SET_ID
    }

    fn file_attributes(&self, name: &[u8]) -> Attributes {
        let mut attributes = self.source.0[name].attributes.clone();
        if !self.options.preserve.owner {
            attributes.remove(&b"security.capability"[..]);
        }
        attributes
    }

    /// The bytes at `name` are the source's; the rest is made so.
    fn keep(&mut self, name: &[u8]) {
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
                // Whether the bits of an owner that is not kept stay depends on whose file it was.
                if !preserve.owner {
                    want.mode_open = SET_ID;
                }
            }
            if let Some((user, group)) = owner {
                (want.user, want.group) = (Some(user), Some(group));
            }
            if let Some(attributes) = &attributes {
                want.attributes = Some(attributes.clone());
            }
        }
    }

    fn names_of(&self, token: Token) -> Vec<Name> {
        let tree = self.wanted.tree.iter();
        tree.filter(|(_, want)| want.token == token).map(|(name, _)| name.clone()).collect()
    }

    /// Names of one file of the source.
    fn group(&mut self, names: &[Name]) {
        let verdicts: Vec<Verdict> =
            names.iter().map(|name| self.verdict(name, self.options.overwrite)).collect();
        for (name, verdict) in names.iter().zip(&verdicts) {
            self.overwrite_rules(name, *verdict);
        }
        if verdicts.contains(&Verdict::Leave) {
            for (name, verdict) in names.iter().zip(&verdicts) {
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
                // It may have become a name of one that was left as it is.
                (want.mode, want.user, want.group, want.attributes) = (None, None, None, None);
            }
            return;
        }
        let kept = names.iter().zip(&verdicts).find(|(_, verdict)| **verdict == Verdict::Keep);
        let Some((first, _)) = kept else {
            let token = self.token();
            self.wanted.copies += 1;
            for name in names {
                self.put(name, token);
            }
            // Those of the file that the first of them replaces, and of the directory that it is made in;
            // which is first depends on the order.
            let all = |get: &dyn Fn(&Want) -> Option<u32>| {
                let of = |name: &Name| self.wanted.tree.get(name).and_then(get);
                names.iter().all(|name| of(name) == of(&names[0]))
            };
            let (one_mode, one_group) = (all(&|want| want.mode), all(&|want| want.group));
            for name in names {
                if let Some(want) = self.wanted.tree.get_mut(name) {
                    want.mode = want.mode.filter(|_| one_mode);
                    want.group = want.group.filter(|_| one_group);
                }
            }
            return;
        };
        // One that is there already, or one that was made: which of them depends on the order.
        self.keep(first);
        let Some(mut want) = self.wanted.tree.get(first).cloned() else { return };
        let all_kept = verdicts.iter().all(|verdict| *verdict == Verdict::Keep);
        let is_one = names
            .iter()
            .all(|name| self.wanted.tree.get(name).is_some_and(|there| there.token == want.token));
        // Other names of the old files may stay names of one or not, and then that one was adjusted or not.
        for name in names {
            let Some(token) = self.wanted.tree.get(name).map(|there| there.token) else { continue };
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
            want.mode = want.mode.filter(|_| preserve.mode);
            want.time = want.time.filter(|_| preserve.times);
            want.user = want.user.filter(|_| preserve.owner);
            want.group = want.group.filter(|_| preserve.owner);
            want.attributes = want.attributes.filter(|_| preserve.xattrs);
        }
        if !all_kept {
            self.wanted.copies += 1;
        }
        for name in names {
            let old = self.wanted.tree.insert(name.clone(), want.clone());
            if let (Some(old), true) = (old, self.options.preserve.mode) {
                self.touched.entry(old.token).or_insert_with(|| name.clone());
            }
        }
    }

    fn link(&mut self, name: &[u8], target: &[u8]) {
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
            .is_some_and(|there| there.kind == Some(Kind::Link(target.to_vec())));
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
                attributes: None,
                token,
                links_open: true,
            };
            self.wanted.tree.insert(name.to_vec(), made);
        }
        let time = (preserve.times && self.keeps.link_times).then(|| self.keeps.time(node.time));
        // One that is there already and has the time, as exactly as it is compared, keeps its own.
        let there_time = self.before.0.get(name).map(|there| self.keeps.time(there.time));
        let time = time.filter(|_| !same || time != there_time);
        let Some(want) = self.wanted.tree.get_mut(name) else { return };
        (want.mode, want.attributes, want.links_open) = (None, None, true);
        if time.is_some() {
            want.time = time;
        }
        if preserve.owner && self.keeps.owner && self.runner.user == 0 {
            (want.user, want.group) = (Some(node.owner.0), Some(node.owner.1));
        }
    }

    /// Removes what the destination has in a directory and the source has not.
    fn delete_extra(&mut self, directory: &[u8]) {
        let extra: Vec<Name> = self
            .wanted
            .tree
            .keys()
            .filter(|name| !name.is_empty() && parent(name) == directory)
            .filter(|name| !self.source.0.contains_key(*name))
            .cloned()
            .collect();
        for name in extra {
            if is_part_name(base(&name)) {
                self.rule(&name, Rule::OwnNames);
                continue;
            }
            let is_directory = self.wanted.tree[&name].kind == Some(Kind::Directory);
            if self.options.filter.takes(&name, is_directory) {
                self.remove(&name);
            }
        }
    }

    /// Removes what is at `name` with everything below it that is not excluded; whether all is gone.
    fn remove(&mut self, name: &[u8]) -> bool {
        let mut stays = BTreeSet::new();
        let below: Vec<Name> =
            self.wanted.tree.keys().filter(|other| is_below(other, name)).cloned().collect();
        // Parents come before what is in them.
        for other in &below {
            let is_directory = self.wanted.tree[other].kind == Some(Kind::Directory);
            let taken = self.options.filter.takes(other, is_directory);
            let inside = stays.iter().any(|kept: &Name| is_below(other, kept));
            if !taken || inside {
                stays.insert(other.clone());
            }
        }
        let gone: Vec<Name> = below
            .into_iter()
            .chain([name.to_vec()])
            .filter(|other| {
                !stays.contains(other) && !stays.iter().any(|kept| is_below(kept, other))
            })
            .collect();
        for other in &gone {
            self.wanted.tree.remove(other);
        }
        stays.is_empty()
    }

    /// What rsync does to one name of a file it does to the others.
    fn spread_rules(&mut self) {
        let mut of_file: HashMap<u64, BTreeSet<Rule>> = HashMap::new();
        for (name, rules) in &self.wanted.rules {
            if let Some(node) = self.before.0.get(name).filter(|node| node.links > 1) {
                of_file.entry(node.inode).or_default().extend(rules);
            }
        }
        for (name, node) in &self.before.0 {
            if let Some(rules) = of_file.get(&node.inode) {
                self.wanted.rules.entry(name.clone()).or_default().extend(rules);
            }
        }
    }

    /// Files that were adjusted and have further names that are no business of this run, or of other
    /// files of the source: what they get depends on the order.
    fn open_what_shares(&mut self) {
        let mut sources: HashMap<Token, BTreeSet<u64>> = HashMap::new();
        for (name, want) in &self.wanted.tree {
            if let Some(node) = self.source.0.get(name)
                && matches!(want.token, Token::Old(_))
                && matches!(want.kind, Some(Kind::File { .. }))
            {
                sources.entry(want.token).or_default().insert(node.inode);
            }
        }
        let shared: Vec<Token> = sources
            .into_iter()
            .filter(|(_, nodes)| nodes.len() > 1)
            .map(|(token, _)| token)
            .collect();
        for token in shared {
            for name in self.names_of(token) {
                self.rule(&name, Rule::SharedDestination);
                if let Some(want) = self.wanted.tree.get_mut(&name) {
                    want.links_open = true;
                }
            }
        }
    }
}

/// The name of a run's destination below which the model looks, for messages.
pub fn shown(name: &[u8]) -> String {
    if name.is_empty() { "(root)".to_owned() } else { format!("'{}'", name.escape_ascii()) }
}
