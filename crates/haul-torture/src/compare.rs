//! Compares a destination with the model's expectation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::hash::Hash;

use crate::model::{Want, Wanted, shown};
use crate::rule::Rule;
use crate::tree::{Kind, Name, Node, Time, Tree, is_below};

/// One difference.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The name at which it was found.
    pub name: Name,
    /// What differs, with both values.
    pub what: String,
}

impl Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", shown(&self.name), self.what)
    }
}

/// All differences between `found` and `wanted`.
pub fn differences(wanted: &Wanted, found: &Tree) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut differ = |name: &Name, what: String| {
        differences.push(Difference { name: name.clone(), what });
    };
    for (name, want) in &wanted.tree {
        match found.0.get(name) {
            None => differ(name, format!("is missing; wanted {}", kind_of(want.kind.as_ref()))),
            Some(node) => of_node(want, node, |what| differ(name, what)),
        }
    }
    for (name, node) in &found.0 {
        if !wanted.tree.contains_key(name) {
            differ(name, format!("is there and should not be: {}", kind_of(Some(&node.kind))));
        }
    }
    // Hard links are compared only between names whose other links the model knows.
    let judged: BTreeSet<&Name> = wanted
        .tree
        .iter()
        .filter(|(name, want)| {
            let is_file = |kind: Option<&Kind>| matches!(kind, Some(Kind::File { .. }));
            let found_kind = found.0.get(*name).map(|node| &node.kind);
            !want.links_open && is_file(want.kind.as_ref()) && is_file(found_kind)
        })
        .map(|(name, _)| name)
        .collect();
    let wants = firsts(judged.iter().map(|name| (*name, wanted.tree[*name].token)));
    let founds = firsts(judged.iter().map(|name| (*name, found.0[*name].inode)));
    for name in judged {
        if wants[name] != founds[name] {
            let text = |first: &Name| {
                if first == name {
                    "the first name of its file".into()
                } else {
                    format!("a link to {}", shown(first))
                }
            };
            differ(name, format!("is {}; wanted {}", text(founds[name]), text(wants[name])));
        }
    }
    differences
}

/// Removes the differences that are additional hard links of files that stay: on a file system that changes
/// names, `--delete` cannot distinguish them from the changed name of a source entry (docs/options.md).
pub fn without_spared(
    differences: Vec<Difference>,
    wanted: &Wanted,
    found: &Tree,
) -> Vec<Difference> {
    let staying: BTreeSet<u64> = found
        .0
        .iter()
        .filter(|(name, _)| wanted.tree.contains_key(*name))
        .map(|(_, node)| node.inode)
        .collect();
    let is_spared = |name: &Name| {
        let node = found.0.get(name).filter(|_| !wanted.tree.contains_key(name));
        node.is_some_and(|node| node.links > 1 && staying.contains(&node.inode))
    };
    differences.into_iter().filter(|difference| !is_spared(&difference.name)).collect()
}

/// The differences that no rule of the model explains.
pub fn unexplained(differences: Vec<Difference>, wanted: &Wanted) -> Vec<Difference> {
    let explains = |difference: &Difference, name: &Name, rules: &BTreeSet<Rule>| {
        if *name == difference.name {
            return true;
        }
        let reaches_below = rules.iter().any(|rule| {
            matches!(
                rule,
                Rule::OwnNames
                    | Rule::NoRoomWithoutDelete
                    | Rule::DeleteMakesRoom
                    | Rule::ReadOnlyDirectories
                    | Rule::NoRoomForLinks
                    | Rule::UnlistedDirectories
            )
        });
        reaches_below && is_below(&difference.name, name)
    };
    differences
        .into_iter()
        .filter(|difference| {
            !wanted.rules.iter().any(|(name, rules)| explains(difference, name, rules))
        })
        .collect()
}

/// Maps each name to the first name of the same file.
fn firsts<'a, T: Copy + Eq + Hash>(
    files: impl Iterator<Item = (&'a Name, T)>,
) -> BTreeMap<&'a Name, &'a Name> {
    let mut first = std::collections::HashMap::new();
    files.map(|(name, file)| (name, *first.entry(file).or_insert(name))).collect()
}

fn of_node(want: &Want, node: &Node, mut differ: impl FnMut(String)) {
    if let Some(kind) = &want.kind
        && *kind != node.kind
    {
        differ(format!("is {}; wanted {}", kind_of(Some(&node.kind)), kind_of(Some(kind))));
        return;
    }
    if let Some(mode) = want.mode
        && (mode ^ node.mode) & !want.mode_open != 0
    {
        differ(format!("has mode {:04o}; wanted {mode:04o}", node.mode));
    }
    let (user, group) = node.owner;
    if want.user.is_some_and(|wanted| wanted != user)
        || want.group.is_some_and(|wanted| wanted != group)
    {
        let text = |id: Option<u32>| id.map_or("any".to_owned(), |id| id.to_string());
        differ(format!(
            "belongs to {user}:{group}; wanted {}:{}",
            text(want.user),
            text(want.group)
        ));
    }
    if let Some(time) = want.time
        && time != node.time
        && want.exact_time != Some(node.time)
    {
        differ(format!("is of {}; wanted {}", time_of(node.time), time_of(time)));
    }
    if let Some(attributes) = &want.attributes
        && *attributes != node.attributes
    {
        let text = |attributes: &crate::tree::Attributes| {
            let one = |(name, value): (&Vec<u8>, &Vec<u8>)| {
                let head = &value[..value.len().min(12)];
                format!("{}={}", name.escape_ascii(), head.escape_ascii())
            };
            format!("[{}]", attributes.iter().map(one).collect::<Vec<_>>().join(" "))
        };
        differ(format!("has attributes {}; wanted {}", text(&node.attributes), text(attributes)));
    }
}

fn time_of(time: Time) -> String {
    format!("{}.{:09}", time.seconds, time.nanos)
}

fn kind_of(kind: Option<&Kind>) -> String {
    match kind {
        None => "anything".to_owned(),
        Some(Kind::Directory) => "a directory".to_owned(),
        Some(Kind::Special) => "a special file".to_owned(),
        Some(Kind::Link(target)) => {
            format!("a link to '{}'", target[..target.len().min(40)].escape_ascii())
        }
        Some(Kind::File { size, digest }) => {
            format!("a file of {size} bytes ({}…)", &digest.to_hex()[..8])
        }
    }
}

/// Describes an entry in one line, for reports.
pub fn described(node: Option<&Node>) -> String {
    let Some(node) = node else { return "nothing".to_owned() };
    let attributes: Vec<String> =
        node.attributes.keys().map(|name| name.escape_ascii().to_string()).collect();
    format!(
        "{}, mode {:04o}, {}:{}, {}, {} names{}",
        kind_of(Some(&node.kind)),
        node.mode,
        node.owner.0,
        node.owner.1,
        time_of(node.time),
        node.links,
        if attributes.is_empty() { String::new() } else { format!(", {}", attributes.join(" ")) },
    )
}
