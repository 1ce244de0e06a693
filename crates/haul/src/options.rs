//! The options of a transfer, as the command line or the configuration file gives them.
//!
//! One struct for both: clap fills it from arguments, serde from `[defaults]` and `[profile.NAME]`,
//! with the same names and the same parsers. Unset options are `None`, so that layers can be merged
//! ([`Options::or`]); `settings` resolves the result for the engine.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use haul_engine::{Order, OrderBy, Overwrite};
use haul_storage::DigestKind;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use crate::filter::Pattern;
use crate::units::{Count, OrAuto, Rate, Size, SizeIn, Switch};

/// 1 GiB, the largest block.
const GIB: u64 = 1 << 30;

/// Options of a transfer, besides its locations.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Options {
    /// Use a set of settings: safe, default, aggressive, or a [profile.NAME] of the configuration
    #[arg(long, value_name = "NAME", help_heading = "Speed")]
    pub(crate) profile: Option<String>,

    /// Connections to a remote location
    #[arg(long, value_name = "N|auto", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) lanes: Option<OrAuto<Count<1, 256>>>,

    /// Bytes in flight to a remote location
    #[arg(long, value_name = "SIZE|auto", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) window: Option<OrAuto<SizeIn<4096, { 64 * GIB }>>>,

    /// Size of a range, the part of a file that one connection transfers at a time
    #[arg(long, value_name = "SIZE|auto", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) chunk: Option<OrAuto<SizeIn<4096, { 64 * GIB }>>>,

    /// Files in flight at once
    #[arg(long, value_name = "N|auto", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) files: Option<OrAuto<Count<1, 4096>>>,

    /// Size of one read or write on a disk: 1K to 1G, in steps of 1K
    #[arg(long, value_name = "SIZE", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) block_size: Option<SizeIn<1024, GIB>>,

    /// Maximum number of blocks waiting between reading and writing
    #[arg(long, value_name = "N", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) queue_size: Option<Count<1, 1024>>,

    /// Maximum memory for data in flight, 8M or more
    #[arg(long, value_name = "SIZE", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) memory: Option<SizeIn<{ 8 << 20 }, { 1 << 50 }>>,

    /// Limit the rate of all files together: 10M (bytes per second), 80mbit (bits per second)
    #[arg(long, value_name = "RATE", help_heading = "Speed")]
    #[serde(deserialize_with = "text")]
    pub(crate) bwlimit: Option<Rate>,

    /// What to copy first: size, name or time (smallest, a, oldest first); -size or size:desc reverses
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, help_heading = "Files")]
    #[serde(deserialize_with = "text")]
    pub(crate) order: Option<OrderArg>,

    /// When to replace a file that exists at the destination
    #[arg(long, value_name = "WHEN", help_heading = "Files")]
    #[serde(deserialize_with = "text")]
    pub(crate) overwrite: Option<OverwriteArg>,

    /// Metadata to keep: mode, times, owner, xattrs, links; all; none [without a value: all]
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        help_heading = "Files"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) preserve: Option<PreserveArg>,

    /// Resume partial files of an earlier run [default: yes]
    #[arg(
        long,
        value_name = "yes|no",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        help_heading = "Safety"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) resume: Option<Switch>,

    /// Write the digests of all files to FILE [without a value: SHA256SUMS or B3SUMS in DEST]
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        help_heading = "Safety"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) manifest: Option<ManifestArg>,

    /// Digest to compute for every file [default: sha256 with --manifest, blake3 with --verify]
    #[arg(long, value_name = "DIGEST", help_heading = "Safety")]
    #[serde(deserialize_with = "text")]
    pub(crate) digest: Option<DigestArg>,

    /// Read back what was written and compare it, before the file gets its name where possible
    #[arg(
        long,
        value_name = "yes|no",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        help_heading = "Safety"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) verify: Option<Switch>,

    /// Flush every file to its disk before it gets its name
    #[arg(
        long,
        value_name = "yes|no",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        help_heading = "Safety"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) fsync: Option<Switch>,

    /// Retry transient failures N times [default: 5]
    #[arg(long, value_name = "N", help_heading = "Safety")]
    #[serde(deserialize_with = "text")]
    pub(crate) retries: Option<Count<0, 1000>>,

    /// Leave at least SIZE free at the destination, or stop
    #[arg(long, value_name = "SIZE", help_heading = "Safety")]
    #[serde(deserialize_with = "text")]
    pub(crate) min_free: Option<Size>,

    /// Copy as much as fits, even if the files are known not to fit
    #[arg(
        long,
        value_name = "yes|no",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        help_heading = "Safety"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) no_space_check: Option<Switch>,

    /// Run CMD in a shell at the end, with HAUL_STATUS, HAUL_FILES, HAUL_BYTES and others set
    #[arg(long, value_name = "CMD", help_heading = "General")]
    pub(crate) on_done: Option<String>,

    /// Ring the terminal's bell at the end
    #[arg(
        long,
        value_name = "yes|no",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        help_heading = "General"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) bell: Option<Switch>,

    /// Show progress in one line (total), or below it the files in flight too (files)
    #[arg(
        long,
        value_name = "total|files",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "total",
        help_heading = "General"
    )]
    #[serde(deserialize_with = "text")]
    pub(crate) progress: Option<ProgressArg>,

    /// Store longer files as a folder of parts: only where the file system needs it (auto), never,
    /// or always with parts of SIZE
    #[arg(long, value_name = "auto|never|SIZE", help_heading = "Files")]
    #[serde(deserialize_with = "text")]
    pub(crate) split: Option<SplitArg>,

    /// In the configuration only: on the command line the order of includes and excludes matters, see `args::filters`.
    #[arg(skip)]
    #[serde(deserialize_with = "texts")]
    pub(crate) include: Vec<Pattern>,

    /// As `include`.
    #[arg(skip)]
    #[serde(deserialize_with = "texts")]
    pub(crate) exclude: Vec<Pattern>,
}

impl Options {
    /// These options, with unset ones taken from `lower`. Globs are not merged here: `settings`
    /// collects them from all layers.
    #[must_use]
    pub(crate) fn or(self, lower: &Self) -> Self {
        Self {
            profile: self.profile.or_else(|| lower.profile.clone()),
            lanes: self.lanes.or(lower.lanes),
            window: self.window.or(lower.window),
            chunk: self.chunk.or(lower.chunk),
            files: self.files.or(lower.files),
            block_size: self.block_size.or(lower.block_size),
            queue_size: self.queue_size.or(lower.queue_size),
            memory: self.memory.or(lower.memory),
            bwlimit: self.bwlimit.or(lower.bwlimit),
            order: self.order.or(lower.order),
            overwrite: self.overwrite.or(lower.overwrite),
            preserve: self.preserve.or(lower.preserve),
            resume: self.resume.or(lower.resume),
            manifest: self.manifest.or_else(|| lower.manifest.clone()),
            digest: self.digest.or(lower.digest),
            verify: self.verify.or(lower.verify),
            fsync: self.fsync.or(lower.fsync),
            retries: self.retries.or(lower.retries),
            min_free: self.min_free.or(lower.min_free),
            no_space_check: self.no_space_check.or(lower.no_space_check),
            on_done: self.on_done.or_else(|| lower.on_done.clone()),
            bell: self.bell.or(lower.bell),
            progress: self.progress.or(lower.progress),
            split: self.split.or(lower.split),
            include: self.include,
            exclude: self.exclude,
        }
    }
}

/// `--overwrite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverwriteArg {
    /// If size or modification time differ
    Different,
    /// Never
    Never,
    /// Always
    Always,
    /// If the source was modified later
    Newer,
}

impl FromStr for OverwriteArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false)
            .map_err(|_| format!("'{text}' is not one of different, never, always, newer"))
    }
}

impl From<OverwriteArg> for Overwrite {
    fn from(arg: OverwriteArg) -> Self {
        match arg {
            OverwriteArg::Different => Self::Different,
            OverwriteArg::Never => Self::Never,
            OverwriteArg::Always => Self::Always,
            OverwriteArg::Newer => Self::Newer,
        }
    }
}

/// `--order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrderArg(pub(crate) Order);

impl FromStr for OrderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not one of size, name, time; -size and size:desc reverse the order"
            )
        };
        let (key, is_minus) = text.strip_prefix('-').map_or((text, false), |key| (key, true));
        // rclone uses a comma.
        let (key, direction) = key.split_once([':', ',']).unwrap_or((key, ""));
        let reverse = match direction {
            "" => is_minus,
            "asc" | "ascending" if !is_minus => false,
            "desc" | "descending" if !is_minus => true,
            _ => return Err(wrong()),
        };
        let by = match key {
            "size" => OrderBy::Size,
            "name" => OrderBy::Name,
            "time" | "modtime" => OrderBy::Time,
            _ => return Err(wrong()),
        };
        Ok(Self(Order { by, reverse }))
    }
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressArg {
    /// One line
    Total,
    /// The files in flight too
    Files,
}

impl FromStr for ProgressArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false).map_err(|_| format!("'{text}' is neither total nor files"))
    }
}

/// `--digest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestArg {
    /// As b3sum prints it
    Blake3,
    /// As sha256sum prints it
    Sha256,
    /// No digest
    None,
}

impl FromStr for DigestArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false)
            .map_err(|_| format!("'{text}' is not one of blake3, sha256, none"))
    }
}

impl DigestArg {
    /// The digest, unless it is `none`.
    pub(crate) fn kind(self) -> Option<DigestKind> {
        match self {
            Self::Blake3 => Some(DigestKind::Blake3),
            Self::Sha256 => Some(DigestKind::Sha256),
            Self::None => None,
        }
    }
}

/// `--manifest`, and `manifest = true | false | "FILE"` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManifestArg {
    /// No manifest.
    No,
    /// Under its default name in DEST.
    InDestination,
    /// In this file; a relative path is below DEST if that is on this machine, otherwise below the current directory.
    File(PathBuf),
}

impl FromStr for ManifestArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" | "true" => Self::InDestination,
            "false" => Self::No,
            file => Self::File(PathBuf::from(file)),
        })
    }
}

/// `--split`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SplitArg {
    /// Only files that the file system cannot store whole.
    Auto,
    /// Not at all.
    Never,
    /// As `Auto`; folders of parts of any size are read as files (`--join`).
    Join,
    /// All files longer than this many bytes.
    Size(u64),
}

impl FromStr for SplitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            size => match size.parse() {
                Ok(Size(0)) => Err("a part must have at least 1 byte".to_owned()),
                Ok(Size(size)) => Ok(Self::Size(size)),
                Err(cause) => Err(format!("{cause}, or write 'auto' or 'never'")),
            },
        }
    }
}

/// `--preserve`: everything that is named, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PreserveArg {
    pub(crate) mode: bool,
    pub(crate) times: bool,
    pub(crate) owner: bool,
    /// Whether `owner` was named, so that a refusal is a failure.
    pub(crate) owner_is_named: bool,
    pub(crate) xattrs: bool,
    pub(crate) links: bool,
}

impl PreserveArg {
    /// What `--archive`, and `--preserve` without a list, mean.
    pub(crate) const ALL: Self = Self {
        mode: true,
        times: true,
        owner: true,
        owner_is_named: false,
        xattrs: true,
        links: true,
    };
}

impl FromStr for PreserveArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut preserve = Self::default();
        for word in text.split(',') {
            match word {
                "mode" => preserve.mode = true,
                "times" => preserve.times = true,
                "owner" => (preserve.owner, preserve.owner_is_named) = (true, true),
                "xattrs" => preserve.xattrs = true,
                "links" => preserve.links = true,
                "all" => {
                    preserve = Self { owner_is_named: preserve.owner_is_named, ..Self::ALL };
                }
                "none" if text == "none" => {}
                "none" => return Err("'none' cannot be combined with other values".to_owned()),
                other => {
                    return Err(format!(
                        "'{other}' is not one of mode, times, owner, xattrs, links, all, none"
                    ));
                }
            }
        }
        Ok(preserve)
    }
}

/// A value of the configuration, read by the parser of the command line: `lanes = 4`,
/// `lanes = "auto"`, `verify = true`, `preserve = ["mode", "times"]`.
fn text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = from.deserialize_any(TextVisitor)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

/// A list of such values.
fn texts<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(from: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::<String>::deserialize(from)?;
    list.iter()
        .map(|text| text.parse().map_err(|cause| de::Error::custom(format!("'{text}': {cause}"))))
        .collect()
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string, an integer, true, false or a list")
    }

    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        let mut words: Vec<String> = Vec::new();
        while let Some(word) = list.next_element()? {
            words.push(word);
        }
        Ok(words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preserve_has_the_named_metadata_and_no_other() {
        assert_eq!("all".parse(), Ok(PreserveArg::ALL));
        assert_eq!("none".parse(), Ok(PreserveArg::default()));
        let two: PreserveArg = "mode,times".parse().unwrap();
        assert_eq!(two, PreserveArg { mode: true, times: true, ..PreserveArg::default() });
        assert!("".parse::<PreserveArg>().is_err());
        assert!("mode,none".parse::<PreserveArg>().is_err());
    }

    #[test]
    fn an_order_can_be_reversed_in_three_ways() {
        let order = |text: &str| text.parse::<OrderArg>().map(|OrderArg(order)| order);
        let size = |reverse| Ok(Order { by: OrderBy::Size, reverse });
        assert_eq!(order("size"), size(false));
        for text in ["-size", "size:desc", "size,descending"] {
            assert_eq!(order(text), size(true), "{text}");
        }
        for wrong in ["", "sizes", "-size:desc", "size:up", "size,mixed"] {
            assert!(order(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_upper_layer_wins_and_the_lower_fills_its_gaps() {
        let upper = Options { retries: Some(Count(1)), ..Options::default() };
        let lower =
            Options { retries: Some(Count(2)), fsync: Some(Switch(true)), ..Options::default() };
        let both = upper.or(&lower);
        assert_eq!(both.retries, Some(Count(1)));
        assert_eq!(both.fsync, Some(Switch(true)));
    }
}
