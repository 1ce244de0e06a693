//! The model of haul's documented behaviour: computes the expected tree at the destination after a run
//! from the trees before it.
//!
//! The model is independent of haul's implementation. Where a result may depend on the order of operations,
//! or is not specified (the time of a directory from which an entry was removed), it leaves the field open.

mod acl;
mod deletion;
mod directory;
mod file;
mod kept_link;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::options::Options;
use crate::rule::Rule;
use crate::target::Keeps;
use crate::tree::{Attributes, Kind, Name, Node, Time, Tree, is_below};

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// The expectation for one name. `None` is open.
#[derive(Debug, Clone)]
pub struct Want {
    /// Kind and content; open only if the names of one file contradict each other.
    pub kind: Option<Kind>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Bits of `mode` that are not compared.
    pub mode_open: u32,
    /// User.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Modification time, as the target stores it.
    pub time: Option<Time>,
    /// The exact time of the source, which is also correct: an existing file that has it may get this name as a link.
    pub exact_time: Option<Time>,
    /// Extended attributes.
    pub attributes: Option<Attributes>,
    /// Wants with the same token are names of one file.
    pub token: Token,
    /// Whether its hard links to other names are left open.
    pub links_open: bool,
}

/// Identifies a file of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Token {
    /// An existing file, by its inode.
    Old(u64),
    /// A new file.
    New(u64),
}

/// The expected result of a run.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The tree.
    pub tree: BTreeMap<Name, Want>,
    /// Entries that cannot be copied, and why: the run has to report them and continue.
    pub failures: BTreeMap<Name, &'static str>,
    /// Names at which rsync may behave differently; with some rules, also at all names below them.
    pub rules: BTreeMap<Name, BTreeSet<Rule>>,
    /// Whether rsync 3.5.0 may wait for ever, as it does if a directory stays in the way of one name of a hard-linked
    /// file, or another entry in the way of a directory that has such a name, or if it cannot write to the directory of
    /// one.
    pub rsync_may_hang: bool,
    /// Files whose content has to be moved (hard links count once).
    pub copies: u64,
    /// Lines of the manifest: included source files, except where a link stays in place of the file. Each name
    /// of a hard-linked file counts.
    pub files: usize,
}

/// The user that runs haul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner {
    /// User id; 0 may do everything.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// The user of this process.
pub(crate) fn me() -> Runner {
    Runner { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
}

/// The umask of every run.
pub const UMASK: u32 = 0o022;

/// Computes the expected result of a run with `options` from `source` to a destination with the tree `before`.
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
        kept_links: Vec::new(),
        on_both: Vec::new(),
        has_unlisted: false,
        touched: HashMap::new(),
        next: 0,
    };
    model.run();
    model.wanted
}

impl Wanted {
    /// Notes that rsync deleted nothing any more after an error: entries of `before` that should be gone may exist.
    pub fn deletion_stopped(&mut self, before: &Tree) {
        for name in before.0.keys().filter(|name| !self.tree.contains_key(*name)) {
            self.rules.entry(name.clone()).or_default().insert(Rule::NoDeletionAfterErrors);
        }
    }
}

impl Want {
    fn of(node: &Node) -> Self {
        Self {
            kind: Some(node.kind.clone()),
            mode: Some(node.mode),
            mode_open: 0,
            user: Some(node.owner.0),
            group: Some(node.owner.1),
            // Entries may be added to or removed from a directory whose time the run does not set.
            time: (node.kind != Kind::Directory).then_some(node.time),
            exact_time: None,
            attributes: Some(node.attributes.clone()),
            token: Token::Old(node.inode),
            links_open: false,
        }
    }
}

/// What the run does at a name of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing exists at the name: the file is copied.
    New,
    /// The file is copied over what exists.
    Replace,
    /// The content is up to date; only metadata is adjusted.
    Keep,
    /// Nothing is changed, because of `--overwrite`.
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
    /// Links that rsync keeps in the place of directories.
    kept_links: Vec<Name>,
    /// Directories that both sides have, from which `--delete` removes what the source does not have.
    on_both: Vec<Name>,
    /// Whether the listing of a source directory fails.
    has_unlisted: bool,
    /// Existing files whose metadata was adjusted, with the source that they were adjusted to.
    touched: HashMap<Token, Name>,
    next: u64,
}

impl Model<'_> {
    fn run(&mut self) {
        self.directory(b"");
        let files = std::mem::take(&mut self.files);
        let mut groups: BTreeMap<u64, Vec<Name>> = BTreeMap::new();
        for name in &files {
            let node = &self.source.0[name];
            if self.is_grouped(node) {
                groups.entry(node.inode).or_default().push(name.clone());
            } else {
                self.file(name);
            }
        }
        for names in groups.into_values() {
            self.group(&names);
        }
        self.delete();
        // A link that `--overwrite never` leaves in place of a file has no digest.
        let is_file = |name: &&Name| {
            let want = self.wanted.tree.get(*name);
            want.is_some_and(|want| matches!(want.kind, None | Some(Kind::File { .. })))
        };
        self.wanted.files = files.iter().filter(is_file).count();
        self.open_shared_destinations();
        self.follow_kept_links();
        self.spread_rules();
    }

    /// Whether a file of the source is copied together with its other names.
    fn is_grouped(&self, node: &Node) -> bool {
        self.options.preserve.links && self.keeps.hard_links && node.links > 1
    }

    fn rule(&mut self, name: &[u8], rule: Rule) {
        self.wanted.rules.entry(name.to_vec()).or_default().insert(rule);
    }

    fn fail(&mut self, name: &[u8], why: &'static str) {
        let node = self.source.0.get(name);
        let file = node.filter(|node| matches!(node.kind, Kind::File { .. }));
        self.wanted.rsync_may_hang |= file.is_some_and(|node| self.is_grouped(node));
        self.wanted.failures.insert(name.to_vec(), why);
    }

    fn token(&mut self) -> Token {
        self.next += 1;
        Token::New(self.next)
    }

    /// What rsync does to one name of a file affects its other names.
    fn spread_rules(&mut self) {
        self.spread_read_only();
        self.spread_to_names(Rule::ThroughKeptLink);
        // It links them to the existing file, which haul replaces.
        self.spread_to_names(Rule::PrivilegesAreCopied);
        self.note_inherited_elsewhere();
        self.note_special_bits();
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
        // New names of a file have the mode that it got when another name was removed.
        self.spread_to_names(Rule::RemovedNamesGetWritable);
    }

    /// A rule that applies to one name of a source file applies to its other names, since rsync links them to it.
    fn spread_to_names(&mut self, rule: Rule) {
        let source = self.source;
        let has_rule = |name: &Name| {
            let rules = self.wanted.rules.get(name);
            rules.is_some_and(|rules| rules.contains(&rule))
        };
        let named = source.0.iter().filter(|(_, node)| node.links > 1);
        let with_rule = named.clone().filter(|(name, _)| has_rule(name));
        let files: BTreeSet<u64> = with_rule.map(|(_, node)| node.inode).collect();
        for (name, _) in named.filter(|(_, node)| files.contains(&node.inode)) {
            self.rule(name, rule);
        }
    }

    /// If rsync cannot write to the directory of one name of a file, that name may be missing, and the file's
    /// other names are linked to each other only.
    fn spread_read_only(&mut self) {
        let is_set =
            |(_, rules): &(&Name, &BTreeSet<Rule>)| rules.contains(&Rule::ReadOnlyDirectories);
        let directories: Vec<Name> =
            self.wanted.rules.iter().filter(is_set).map(|(name, _)| name.clone()).collect();
        let source = self.source;
        let named = source.0.iter().filter(|(_, node)| node.links > 1);
        let is_in_one = |name: &Name| directories.iter().any(|above| is_below(name, above));
        let files: BTreeSet<u64> =
            named.clone().filter(|(name, _)| is_in_one(name)).map(|(_, node)| node.inode).collect();
        self.wanted.rsync_may_hang |= self.options.preserve.links && !files.is_empty();
        for (name, _) in named.filter(|(_, node)| files.contains(&node.inode)) {
            self.rule(name, Rule::ReadOnlyDirectories);
        }
    }

    /// Notes the names of files that rsync may create at a name that haul does not copy (see
    /// [`Rule::InheritedElsewhere`]).
    fn note_inherited_elsewhere(&mut self) {
        let source = self.source;
        let is_only_rsyncs = |name: &Name| {
            let above = |other: &Name| name == other || is_below(name, other);
            let is_one = |rule: &Rule| matches!(rule, Rule::OwnNames | Rule::NoRoomWithoutDelete);
            let mut rules = self.wanted.rules.iter();
            rules.any(|(other, rules)| above(other) && rules.iter().any(is_one))
        };
        let named = source.0.iter().filter(|(_, node)| self.is_grouped(node));
        let inherits = |name: &Name| self.inherits_acl(name) || self.creator(name).1.is_none();
        let elsewhere = named.clone().filter(|(name, _)| is_only_rsyncs(name) && inherits(name));
        let files: BTreeSet<u64> = elsewhere.map(|(_, node)| node.inode).collect();
        let names: Vec<&Name> =
            named.filter(|(_, node)| files.contains(&node.inode)).map(|(name, _)| name).collect();
        for name in names {
            self.rule(name, Rule::InheritedElsewhere);
        }
    }

    /// Leaves open the links of existing files that are the destination of several source files: the result depends
    /// on the order.
    fn open_shared_destinations(&mut self) {
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

/// A name below the destination, for messages.
pub fn shown(name: &[u8]) -> String {
    if name.is_empty() { "(root)".to_owned() } else { format!("'{}'", name.escape_ascii()) }
}
