//! Adds a remote to the text of the file, or removes one. Nothing else changes, comments included: a new remote is
//! appended, and a removed one is cut out. Where that is impossible (an inline table, or dotted keys to remove),
//! toml_edit edits the text. Line ends stay as they are, except that those of a file that has both kinds become CRLF
//! then.

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value, value};

use super::Config;
use super::read::{REMOTE_KEYS, is_key};

/// A remote to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewRemote {
    pub(crate) url: String,
    pub(crate) user: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) password_command: Option<String>,
}

impl NewRemote {
    fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let Self { url, user, port, password_command } = self;
        let [at_url, at_user, at_port, at_command, _] = REMOTE_KEYS;
        let values = [
            (at_url, Some(Value::from(url.as_str()))),
            (at_user, user.as_deref().map(Value::from)),
            (at_port, port.map(|port| Value::from(i64::from(port)))),
            (at_command, password_command.as_deref().map(Value::from)),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

/// Adds a remote to the text of a file without faults.
///
/// # Errors
/// If something else would change, or the new text would have a fault; the message has the cause.
pub(crate) fn with_remote(text: &str, name: &str, new: &NewRemote) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|_| UNCLEAR)?;
    let edited = match document.get_mut("remote") {
        // `remote = { nas = { … } }`: there cannot be a table of that name as well.
        Some(Item::Value(Value::InlineTable(all))) => {
            all.insert(name, Value::from(new.values().collect::<InlineTable>()));
            text_of(&document, text)
        }
        _ => appended(text, name, new),
    };
    let mut expected = contents(text);
    expected.push((name.to_owned(), vec![String::new()]));
    verified(edited, expected, name)
}

/// Removes a remote from the text of a file without faults.
///
/// # Errors
/// As [`with_remote`].
pub(crate) fn without_remote(text: &str, name: &str) -> Result<String, String> {
    let edited = match lines_of(text, name) {
        Some(lines) => format!("{}{}", &text[..lines.start], &text[lines.end..]),
        None => {
            let mut document: DocumentMut = text.parse().map_err(|_| UNCLEAR)?;
            let remotes = document.get_mut("remote").and_then(Item::as_table_like_mut);
            remotes.and_then(|remotes| remotes.remove(name)).ok_or(UNCLEAR)?;
            text_of(&document, text)
        }
    };
    let mut expected = contents(text);
    expected.retain(|(of, _)| of != name);
    verified(edited, expected, name)
}

const UNCLEAR: &str =
    "it cannot be changed without changing something else; haul config edit opens the file";

/// The text of an edited document, with the line ends of the text `before`: toml_edit makes all of them LF.
fn text_of(document: &DocumentMut, before: &str) -> String {
    let edited = document.to_string().replace("\r\n", "\n");
    edited.replace('\n', line_end(before))
}

fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

fn appended(text: &str, name: &str, new: &NewRemote) -> String {
    let mut remote = Table::new();
    new.values().for_each(|(key, item)| drop(remote.insert(key, value(item))));
    let mut all = Table::new();
    all.set_implicit(true);
    all.insert(name, Item::Table(remote));
    let mut document = DocumentMut::new();
    document.insert("remote", Item::Table(all));
    let added = document.to_string();
    let line_end = line_end(text);
    let gap = match (text.is_empty(), text.ends_with('\n')) {
        (true, _) => "",
        (false, true) => line_end,
        (false, false) => &line_end.repeat(2),
    };
    format!("{text}{gap}{}", added.replace('\n', line_end))
}

/// The lines of a remote with a header of its own; `None` if there is no such remote. They begin with the comment above
/// the header, if that begins the file or follows an empty line, and end with the last value of the remote. Empty lines
/// before or after it belong to them.
fn lines_of(text: &str, name: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let (_, remotes) = root.get_ref().iter().find(|(key, _)| key.get_ref() == "remote")?;
    let mut remotes = remotes.get_ref().as_table()?.iter();
    let (key, values) = remotes.find(|(key, _)| key.get_ref() == name)?;
    let start_of = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end_of = |at: usize| text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
    let header = start_of(key.span().start);
    if !text[header..].trim_start().starts_with('[') {
        return None;
    }
    let mut end = end_of(end_in(values.get_ref().as_table()?).max(header));
    let is_empty = |range: Range<usize>| text[range].trim().is_empty();
    let mut start = header;
    while start > 0 {
        let above = start_of(start - 1);
        if !is_comment(&text[above..start]) {
            break;
        }
        start = above;
    }
    if start > 0 && !is_empty(start_of(start - 1)..start) {
        start = header;
    }
    let has_gap = start == 0 || is_empty(start_of(start - 1)..start);
    while has_gap && end < text.len() && is_empty(end..end_of(end)) {
        end = end_of(end);
    }
    // At the end of the file, the empty lines before the remote are removed too.
    while end == text.len() && start > 0 && is_empty(start_of(start - 1)..start) {
        start = start_of(start - 1);
    }
    Some(start..end)
}

/// Where the last value of a table ends, including those of nested tables.
fn end_in(table: &DeTable<'_>) -> usize {
    let ends = table.iter().map(|(key, value)| {
        let end = key.span().end.max(value.span().end);
        value.get_ref().as_table().map_or(end, |inner| end.max(end_in(inner)))
    });
    ends.max().unwrap_or(0)
}

/// Whether a line is a comment in words, not a commented-out setting.
fn is_comment(line: &str) -> bool {
    let Some(text) = line.trim_start().strip_prefix('#') else { return false };
    let text = text.trim_start_matches('#').trim();
    let is_setting = text.split_once('=').is_some_and(|(key, _)| is_key(key.trim()));
    !is_setting && !text.starts_with('[')
}

/// All valid values of a text as they are shown, in the order of the file, each with the name of its remote (empty if
/// it has none).
fn contents(text: &str) -> Vec<(String, Vec<String>)> {
    let (config, _) = Config::parse(Path::new(""), text);
    let entries = config.entries.into_iter();
    entries
        .map(|entry| {
            let remote = entry.section.remote().unwrap_or_default().to_owned();
            (remote, vec![entry.section.name(), entry.key, format!("{:?}", entry.shown)])
        })
        .collect()
}

/// The edited text, if its values are the expected ones. Those of the remote `name` are not compared.
fn verified(
    edited: String,
    expected: Vec<(String, Vec<String>)>,
    name: &str,
) -> Result<String, String> {
    let (_, faults) = Config::parse(Path::new(""), &edited);
    if let Some(fault) = faults.first() {
        return Err(fault.cause.clone());
    }
    let others = |all: Vec<(String, Vec<String>)>| {
        let mut others: Vec<_> = all.into_iter().filter(|(of, _)| of != name).collect();
        others.sort();
        others
    };
    let found = contents(&edited);
    let has_remote = |all: &[(String, Vec<String>)]| all.iter().any(|(of, _)| of == name);
    let is_right = has_remote(&found) == has_remote(&expected) && others(found) == others(expected);
    if is_right { Ok(edited) } else { Err(UNCLEAR.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nas() -> NewRemote {
        NewRemote { url: "sftp://nas/x".into(), user: Some("ada".into()), ..NewRemote::default() }
    }

    const ADDED: &str = "[remote.nas]\nurl = \"sftp://nas/x\"\nuser = \"ada\"\n";

    #[test]
    fn a_remote_is_appended_and_the_rest_stays_byte_for_byte() {
        let with = |text: &str| with_remote(text, "nas", &nas()).unwrap();
        assert_eq!(with(""), ADDED);
        let text =
            "# mine\n[remote.b]  # b\nurl='/b'\n#user = \"x\"\n\n[defaults]\nlanes   = 4\n# end\n";
        assert_eq!(with(text), format!("{text}\n{ADDED}"));
        assert_eq!(with("[defaults]"), format!("[defaults]\n\n{ADDED}"));
        let dotted = "remote.b.url = \"/b\"\n";
        assert_eq!(with(dotted), format!("{dotted}\n{ADDED}"));
        let windows = "[defaults]\r\nlanes = 4\r\n";
        assert_eq!(with(windows), format!("{windows}\r\n{}", ADDED.replace('\n', "\r\n")));
    }

    #[test]
    fn a_remote_is_added_to_an_inline_table_if_the_file_has_one() {
        let text = "# mine\nremote = { b = { url = \"/b\" } } # all\n";
        let edited = with_remote(text, "nas", &nas()).unwrap();
        let config = Config::of(&edited);
        assert_eq!(config.remote.keys().collect::<Vec<_>>(), ["b", "nas"]);
        assert!(edited.starts_with("# mine\n") && edited.ends_with("# all\n"), "{edited}");
        let without = without_remote(&edited, "nas").unwrap();
        assert_eq!(Config::of(&without).remote.keys().collect::<Vec<_>>(), ["b"]);
    }

    /// Formerly, all lines of such a file got LF.
    #[test]
    fn the_line_ends_of_a_file_with_an_inline_table_stay() {
        let unix = "# mine\n[remote]\nb = { url = \"/b\" }\nc.url = \"/c\"\n";
        let inline = "remote = { b = { url = \"/b\" } }\n[defaults]\nlanes = 4\n";
        let windows = |text: &str| text.replace('\n', "\r\n");
        let added = with_remote(inline, "nas", &nas()).unwrap();
        assert_eq!(with_remote(&windows(inline), "nas", &nas()).unwrap(), windows(&added));
        for name in ["b", "c"] {
            let removed = without_remote(unix, name).unwrap();
            assert_eq!(without_remote(&windows(unix), name).unwrap(), windows(&removed));
        }
    }

    #[test]
    fn values_are_quoted_as_toml_requires() {
        let new = NewRemote {
            url: "sftp://nas/x".into(),
            user: None,
            port: Some(22),
            password_command: Some("sh -c \"printf '%s' \\\\x\"".into()),
        };
        let edited = with_remote("", "my.nas", &new).unwrap();
        let config = Config::of(&edited);
        assert_eq!(config.remote["my.nas"].password_command, new.password_command);
        assert_eq!(config.remote["my.nas"].port, Some(22));
    }

    #[test]
    fn a_remote_is_removed_with_its_comment_and_nothing_else() {
        let (before, after) =
            ("# my file\n\n[defaults]\nlanes = 4\n", "# far\n[remote.b]\nurl = \"/b\"\n");
        let nas = "# at home\n[remote.nas] # x\nurl = \"/n\" # y\n";
        let without = |text: &str| without_remote(text, "nas").unwrap();
        assert_eq!(without(&format!("{before}\n{nas}\n{after}")), format!("{before}\n{after}"));
        assert_eq!(without(&format!("{before}\n{nas}")), before);
        assert_eq!(without(&format!("{nas}\n{after}")), after);
        // The comment may be about the section above.
        let expected = format!("{before}# at home\n{after}");
        assert_eq!(without(&format!("{before}{nas}{after}")), expected);
        assert_eq!(without(nas), "");
        assert_eq!(
            without("remote.nas.url = \"/n\"\nremote.b.url = \"/b\"\n"),
            "remote.b.url = \"/b\"\n"
        );
    }

    #[test]
    fn settings_commented_out_above_a_remote_stay() {
        let nas = "[remote.nas]\nurl = \"/n\"\n";
        for before in ["[defaults]\nretries = 3\n#lanes = 4\n", "#lanes = 4\n", "# [profile.x]\n"] {
            assert_eq!(without_remote(&format!("{before}{nas}"), "nas").unwrap(), before);
        }
    }

    #[test]
    fn nested_tables_are_removed_with_their_remote() {
        let after = "[remote.b]\nurl = \"/b\"\n";
        let nas = "[remote.nas]\nurl = \"http://n/\"\n\n[remote.nas.headers]\nX-A = \"1\"\n\n";
        assert_eq!(without_remote(&format!("{nas}{after}"), "nas").unwrap(), after);
        // Another table between them must stay.
        let apart =
            format!("[remote.nas]\nurl = \"http://n/\"\n{after}[remote.nas.headers]\nX = \"1\"\n");
        assert!(without_remote(&apart, "nas").is_err());
    }

    #[test]
    fn an_added_remote_can_be_removed_again() {
        for text in ["", "[defaults]\nlanes = 4\n", "# mine\n\n[remote.b]\nurl = '/b'\n\n\n"] {
            let added = with_remote(text, "nas", &nas()).unwrap();
            let removed = without_remote(&added, "nas").unwrap();
            assert_eq!(removed.trim_end(), text.trim_end());
        }
    }
}
