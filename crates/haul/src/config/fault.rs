//! Faults of the configuration file, each with its line, section and key.

use std::fmt;
use std::path::PathBuf;

/// A part of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Section {
    /// Above all tables.
    Top,
    /// `[defaults]`
    Defaults,
    /// `[profile.NAME]`
    Profile(String),
    /// `[remote.NAME]`
    Remote(String),
}

impl Section {
    /// Its name without brackets: `remote.nas`. Empty for [`Section::Top`].
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Top => String::new(),
            Self::Defaults => "defaults".to_owned(),
            Self::Profile(name) => format!("profile.{}", quoted(name)),
            Self::Remote(name) => format!("remote.{}", quoted(name)),
        }
    }

    /// The remote, if it is one.
    pub(crate) fn remote(&self) -> Option<&str> {
        match self {
            Self::Remote(name) => Some(name),
            _ => None,
        }
    }
}

/// As the header of a table.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            section => write!(f, "[{}]", section.name()),
        }
    }
}

/// A key in TOML syntax.
fn quoted(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in name.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Control characters end at U+009F.
            letter if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// One fault: `FILE:LINE: [SECTION] KEY: CAUSE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The file.
    pub(crate) file: PathBuf,
    /// The line, from 1; `None` if the file cannot be read at all.
    pub(crate) line: Option<usize>,
    /// The part of the file.
    pub(crate) section: Section,
    /// The key, if the fault concerns one.
    pub(crate) key: Option<String>,
    /// What is wrong.
    pub(crate) cause: String,
    /// What to write instead, where that is known.
    pub(crate) hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        match (&self.section, &self.key) {
            (Section::Top, None) => {}
            (Section::Top, Some(key)) => write!(f, "{key}: ")?,
            (section, None) => write!(f, "{section}: ")?,
            (section, Some(key)) => write!(f, "{section} {key}: ")?,
        }
        f.write_str(&self.cause)
    }
}

/// All faults of a file, at least one.
#[derive(Debug)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

/// The first one, with its hint on a line of its own.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else { return Ok(()) };
        write!(f, "{first}")?;
        let more = (self.0.len() > 1)
            .then(|| format!("haul config check lists all {} errors", self.0.len()));
        let hints: Vec<_> = first.hint.iter().cloned().chain(more).collect();
        if hints.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", hints.join("; ")) }
    }
}

/// At most three names in `known` that `word` may be a misspelling of, the most similar first.
pub(crate) fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const ALIKE: f64 = 0.8;
    const MOST: usize = 3;
    let word = word.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        // One letter too many, missing or wrong, or two swapped.
        let is_slip = word.len() > 2 && strsim::osa_distance(&word, &name) <= 1;
        strsim::jaro_winkler(&word, &name).max(if is_slip { 0.9 } else { 0.0 })
    };
    let mut found: Vec<_> = known
        .into_iter()
        .map(|name| (likeness(name), name))
        .filter(|(like, _)| *like > ALIKE)
        .collect();
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.into_iter().map(|(_, name)| name).take(MOST).collect()
}

/// `did you mean 'a' or 'b'?`, if there is anything similar.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let names: Vec<_> = similar(word, known).into_iter().map(|name| format!("'{name}'")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_prints_file_line_section_and_key() {
        let mut fault = Fault {
            file: "c.toml".into(),
            line: Some(3),
            section: Section::Remote("my nas".into()),
            key: Some("port".into()),
            cause: "it is text".into(),
            hint: None,
        };
        assert_eq!(fault.to_string(), "c.toml:3: [remote.\"my nas\"] port: it is text");
        (fault.section, fault.key) = (Section::Top, None);
        assert_eq!(fault.to_string(), "c.toml:3: it is text");
    }

    /// Formerly, names had the escapes of Rust: `\u{e4}`, `\'`.
    #[test]
    fn names_are_keys_in_toml_syntax() {
        assert_eq!(Section::Remote("\u{e4}'".into()).to_string(), "[remote.\"\u{e4}'\"]");
        for name in ["", "a.b", "\u{e4}\u{1f600}", "it's", "a\"b\\c", "a\nb\t\u{1b}\u{7f}\u{9b}"] {
            let text = Section::Remote(name.into()).to_string();
            let document: toml_edit::DocumentMut = text.parse().unwrap();
            assert!(document["remote"].get(name).is_some(), "{text}");
        }
    }

    #[test]
    fn similar_names_are_suggested() {
        let known = ["fsync", "files", "retries"];
        assert_eq!(did_you_mean("fsnyc", known).as_deref(), Some("did you mean 'fsync'?"));
        assert_eq!(did_you_mean("Retry", known).as_deref(), Some("did you mean 'retries'?"));
        assert_eq!(did_you_mean("password", known), None);
        assert_eq!(did_you_mean("nsa", ["nas", "cloud"]).as_deref(), Some("did you mean 'nas'?"));
    }
}
