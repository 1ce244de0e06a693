//! The model of ACLs: which entries inherit one, and what a mode and an ACL do to each other.

use super::{Model, SET_ID, Want};
use crate::acl::{ACCESS, DEFAULT, mode_without, with_mode};
use crate::rule::Rule;
use crate::tree::{Attributes, Kind, Name, Node, parent};

const STICKY: u32 = 0o1000;
const GROUP: u32 = 0o070;

/// The ACL of an entry with these attributes.
fn of(attributes: &Attributes) -> Option<&Vec<u8>> {
    attributes.get(ACCESS.as_bytes())
}

impl Model<'_> {
    /// Whether a new entry at `name` may get an ACL from its directory. A new directory inherits it from its own, and
    /// when a directory gets the ACLs of its source depends on the order.
    pub(super) fn inherits_acl(&self, name: &[u8]) -> bool {
        let has_default = |node: &Node| node.attributes.contains_key(DEFAULT.as_bytes());
        let mut directory = parent(name);
        loop {
            let existing = self.before.0.get(directory);
            let existing = existing.filter(|node| node.kind == Kind::Directory);
            let source = self
                .source
                .0
                .get(directory)
                .filter(|_| self.options.preserve.xattrs && self.keeps.xattrs);
            if existing.into_iter().chain(source).any(has_default) {
                return true;
            }
            if existing.is_some() {
                return false;
            }
            if directory.is_empty() {
                return self.options.acl_above;
            }
            directory = parent(directory);
        }
    }

    /// Notes entries whose ACL rsync sets without rights of the group (see [`Rule::AclBeforeSpecialBits`]).
    pub(super) fn note_special_bits(&mut self) {
        let (preserve, keeps) = (self.options.preserve, self.keeps);
        if !(preserve.mode && preserve.xattrs && keeps.mode && keeps.xattrs) {
            return;
        }
        let is_special = |name: &Name, node: &Node| {
            let old = self.before.0.get(name).map_or(0, |old| old.mode);
            match node.kind {
                Kind::Directory => node.mode & STICKY & !old != 0,
                Kind::File { .. } => old & SET_ID & !node.mode != 0,
                Kind::Link(_) | Kind::Special => false,
            }
        };
        // rsync takes the entry from the mode only if they have the same rights.
        let from_mode = |node: &Node| {
            of(&node.attributes).is_some_and(|acl| mode_without(acl) & GROUP == node.mode & GROUP)
        };
        let source = self.source.0.iter();
        let names: Vec<Name> = source
            .filter(|(name, node)| from_mode(node) && is_special(name, node))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.rule(&name, Rule::AclBeforeSpecialBits);
        }
    }
}

/// The mode of an entry once it has lost its ACL. It is open if that of the entry, or whether it has an ACL, is.
pub(super) fn without_acl(mode: Option<u32>, attributes: Option<&Attributes>) -> Option<u32> {
    let rights = of(attributes?).map(|acl| mode_without(acl));
    mode.map(|mode| rights.map_or(mode, |rights| mode & !0o777 | rights))
}

/// The mode of an entry that had the mode `mode` and the attributes `old`, after it got the attributes of `node`, but not
/// its mode.
pub(super) fn mode_with_attributes(
    mode: Option<u32>,
    old: Option<&Attributes>,
    node: &Node,
) -> Option<u32> {
    if of(&node.attributes).is_some() {
        return mode.map(|mode| mode & !0o777 | node.mode & 0o777);
    }
    without_acl(mode, old)
}

/// Adjusts the ACL of an entry whose attributes are not copied, after it got its mode.
pub(super) fn follow_mode(want: &mut Want) {
    let (Some(mode), Some(attributes)) = (want.mode, &mut want.attributes) else { return };
    if let Some(acl) = attributes.get_mut(ACCESS.as_bytes()) {
        *acl = with_mode(acl, mode);
    }
}
