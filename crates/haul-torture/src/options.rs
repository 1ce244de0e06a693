//! The options of one run, for haul and for rsync.

use std::ffi::OsString;

use crate::chance::Chance;
use crate::deletion::Deletion;
use crate::filter::Filter;

/// `--overwrite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// If size or time differ.
    Different,
    /// Never.
    Never,
    /// Always.
    Always,
    /// If the source is newer.
    Newer,
}

impl Overwrite {
    const fn name(self) -> &'static str {
        match self {
            Self::Different => "different",
            Self::Never => "never",
            Self::Always => "always",
            Self::Newer => "newer",
        }
    }
}

/// `--preserve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification times.
    pub times: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Hard links.
    pub links: bool,
}

impl Preserve {
    const DEFAULT: Self =
        Self { mode: true, times: true, owner: false, xattrs: false, links: true };
    const ALL: Self = Self { mode: true, times: true, owner: true, xattrs: true, links: true };

    fn list(self) -> String {
        let words = [
            (self.mode, "mode"),
            (self.times, "times"),
            (self.owner, "owner"),
            (self.xattrs, "xattrs"),
            (self.links, "links"),
        ];
        let names: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }
}

/// How the trees are named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `haul sync SOURCE DEST`.
    Sync,
    /// `haul cp SOURCE/ DEST`.
    Content,
    /// `haul cp SOURCE DEST`, which becomes `DEST/SOURCE`.
    Into,
}

/// All options of one run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The command.
    pub form: Form,
    /// `--overwrite`: which existing files are replaced.
    pub overwrite: Overwrite,
    /// `--preserve`: the metadata to copy.
    pub preserve: Preserve,
    /// `--delete`: whether entries that the source lacks are removed.
    pub delete: bool,
    /// What `--delete` may remove.
    pub deletion: Deletion,
    /// Whether the trees have ACLs, which rsync copies only with `-A`; haul takes them for extended attributes.
    pub acls: bool,
    /// Whether the directory that the copy is created in has a default ACL.
    pub acl_above: bool,
    /// `--include` and `--exclude`.
    pub filter: Filter,
    /// Whether a manifest is written.
    pub manifest: bool,
    /// Options that do not affect the result: `--verify`, `--files 2`, ….
    pub tuning: Vec<&'static str>,
    /// The argument for `preserve`.
    preserve_argument: Option<String>,
}

const TUNING: &[&str] = &[
    "--verify",
    "--fsync",
    "--no-resume",
    "--files=1",
    "--files=2",
    "--files=64",
    "--block-size=4K",
    "--block-size=1K",
    "--block-size=1M",
    "--queue-size=1",
    "--memory=8M",
    "--digest=blake3",
    "--digest=sha256",
    "--profile=safe",
    "--profile=aggressive",
    "--split=never",
];

impl Options {
    /// Random options. `may_manifest` is false where a manifest would interfere.
    pub fn random(chance: &mut Chance, may_manifest: bool) -> Self {
        let form = *chance.pick(&[Form::Sync, Form::Sync, Form::Content, Form::Into]);
        let overwrite = match chance.below(8) {
            0 => Overwrite::Never,
            1 => Overwrite::Always,
            2 => Overwrite::Newer,
            _ => Overwrite::Different,
        };
        let (preserve, preserve_argument) = match chance.below(10) {
            0..3 => (Preserve::DEFAULT, None),
            3..6 => (Preserve::ALL, Some("-a".to_owned())),
            6 => (Preserve::ALL, Some("--preserve".to_owned())),
            _ => {
                let mut bit = || chance.one_in(2);
                let preserve = Preserve {
                    mode: bit(),
                    times: bit(),
                    owner: bit(),
                    xattrs: bit(),
                    links: bit(),
                };
                (preserve, Some(format!("--preserve={}", preserve.list())))
            }
        };
        let filter = if chance.one_in(4) { Filter::random(chance) } else { Filter::default() };
        let mut tuning = Vec::new();
        if chance.one_in(2) {
            for _ in 0..=chance.below(2) {
                let word = *chance.pick(TUNING);
                let option = word.split('=').next();
                if tuning.iter().all(|other: &&str| other.split('=').next() != option) {
                    tuning.push(word);
                }
            }
        }
        Self {
            form,
            overwrite,
            preserve,
            delete: form == Form::Sync && chance.one_in(2),
            deletion: Deletion::default(),
            acls: false,
            acl_above: false,
            filter,
            manifest: may_manifest && chance.one_in(6),
            tuning,
            preserve_argument,
        }
    }

    /// The arguments for haul without the two locations.
    pub fn haul(&self) -> Vec<OsString> {
        let command = if self.form == Form::Sync { "sync" } else { "cp" };
        let mut arguments = vec![command.to_owned(), "--json".into(), "--no-progress".into()];
        if self.overwrite != Overwrite::Different {
            arguments.push(format!("--overwrite={}", self.overwrite.name()));
        }
        arguments.extend(self.preserve_argument.clone());
        if self.delete {
            arguments.push("--delete".into());
            arguments.extend(self.deletion.arguments());
        }
        if self.manifest {
            arguments.push("--manifest".into());
        }
        arguments.extend(self.tuning.iter().map(|word| (*word).to_owned()));
        arguments.extend(self.filter.arguments());
        arguments.into_iter().map(OsString::from).collect()
    }

    /// The options that rsync has, too: its `--max-delete` removes up to the limit, and an empty source removes
    /// everything.
    #[must_use]
    pub fn of_rsync(&self) -> Self {
        let deletion = Deletion { limit: None, from_empty: true, ..self.deletion };
        Self { deletion, ..self.clone() }
    }

    /// The equivalent arguments for rsync, without the two locations.
    pub fn rsync(&self) -> Vec<OsString> {
        let preserve = self.preserve;
        let mut arguments: Vec<String> =
            ["-r", "-l", "--no-D", "--numeric-ids", "--modify-window=-1"].map(String::from).into();
        let flags = [
            (preserve.mode, "-p"),
            (preserve.times, "-t"),
            (preserve.owner, "-og"),
            (preserve.xattrs, "-X"),
            // It implies `-p`.
            (preserve.xattrs && preserve.mode && self.acls, "-A"),
            (preserve.links, "-H"),
            (self.delete, "--delete"),
            (self.delete && self.deletion.ignore_errors, "--ignore-errors"),
            (self.overwrite == Overwrite::Never, "--ignore-existing"),
            (self.overwrite == Overwrite::Always, "--ignore-times"),
            (self.overwrite == Overwrite::Newer, "--update"),
        ];
        arguments.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| (*flag).to_owned()));
        arguments.extend(self.filter.arguments());
        arguments.into_iter().map(OsString::from).collect()
    }

    /// Whether a second run with the same options has nothing to copy.
    pub fn settles(&self) -> bool {
        match self.overwrite {
            Overwrite::Always => false,
            // Without its source's time, a copy counts as different, and a source whose time is in the future as newer.
            Overwrite::Different | Overwrite::Newer => self.preserve.times,
            Overwrite::Never => true,
        }
    }
}
