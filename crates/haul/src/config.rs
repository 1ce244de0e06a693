//! The configuration file: `haul/config.toml`.
//!
//! ```toml
//! [defaults]
//! bwlimit = "80mbit"
//!
//! [profile.night]
//! profile = "aggressive"
//! exclude = ["*.tmp"]
//!
//! [remote.nas]
//! url = "sftp://nas.example/volume1"
//! user = "ada"
//! password-command = "pass show nas"
//! ```
//!
//! An unknown key or a value that makes no sense is an error that names file, line and key: a
//! misspelt `fsync` must not silently be no fsync.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use haul_http::client::Headers;
use haul_storage::io_cause;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::options::Options;

/// What the file says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Options of every transfer.
    pub(crate) defaults: Options,
    /// Options of `--profile NAME`.
    pub(crate) profile: BTreeMap<String, Options>,
    /// What `NAME:path` means.
    pub(crate) remote: BTreeMap<String, Remote>,
}

/// A location with a name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Remote {
    /// A location; the path after the colon goes below it.
    pub(crate) url: String,
    /// As whom, unless the location says it.
    pub(crate) user: Option<String>,
    /// Port, unless the location says it.
    pub(crate) port: Option<u16>,
    /// A command that prints the password.
    pub(crate) password_command: Option<String>,
    /// Header fields of requests.
    #[serde(default, deserialize_with = "headers")]
    pub(crate) headers: Option<Headers>,
}

/// `headers = { Name = "value" }`. Values may be secrets, so that no error repeats one.
fn headers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Headers>, D::Error> {
    from.deserialize_any(HeadersVisitor).map(Some)
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Headers::default();
        while let Some((name, value)) = map.next_entry::<String, HeaderText>()? {
            headers.add(&name, &value.0).map_err(de::Error::custom)?;
        }
        Ok(headers)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Headers, E> {
        Err(E::custom(NO_HEADERS))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Headers, E> {
        Err(E::custom(NO_HEADERS))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Headers, E> {
        Err(E::custom(NO_HEADERS))
    }
}

const NO_HEADERS: &str = "not a table of names and texts: headers = { Name = \"value\" }";

/// The value of a field.
struct HeaderText(String);

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(HeaderTextVisitor)
    }
}

struct HeaderTextVisitor;

impl Visitor<'_> for HeaderTextVisitor {
    type Value = HeaderText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, value: &str) -> Result<HeaderText, E> {
        Ok(HeaderText(value.to_owned()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<HeaderText, E> {
        Ok(HeaderText(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<HeaderText, E> {
        Err(E::custom(NO_HEADERS))
    }
}

/// Why a configuration cannot be used: `FILE:LINE: KEY: CAUSE`.
#[derive(Debug)]
pub(crate) struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    cause: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// The configuration in the file that `--config` names, or else `HAUL_CONFIG`, or else the
    /// usual one, which need not exist. An empty name stands for no configuration.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        let named =
            named.map(Path::to_owned).or_else(|| env::var_os("HAUL_CONFIG").map(PathBuf::from));
        let (file, must_exist) = match named {
            Some(file) if file.as_os_str().is_empty() => return Ok(Self::default()),
            Some(file) => (file, true),
            None => match usual_file() {
                Some(file) => (file, false),
                None => return Ok(Self::default()),
            },
        };
        match fs::read_to_string(&file) {
            Ok(text) => Self::parse(&file, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {
                Ok(Self::default())
            }
            Err(error) => Err(ConfigError {
                file,
                line: None,
                cause: format!("cannot read ({})", io_cause(&error)),
            }),
        }
    }

    fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let span = error.span();
            let start = span.as_ref().map(|span| span.start.min(text.len()));
            let mut cause = error.message().replace('\n', "; ");
            if let Some(key) = start.and_then(|start| key_at(text, start))
                && !cause.contains(&format!("`{key}`"))
            {
                cause = format!("{key}: {cause}");
            }
            let line = start.map(|start| text[..start].matches('\n').count() + 1);
            ConfigError { file: file.to_owned(), line, cause }
        })
    }
}

fn usual_file() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("haul/config.toml"))
}

/// The key of the assignment in which byte `at` of the text lies.
fn key_at(text: &str, at: usize) -> Option<&str> {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next()?;
    let (key, _) = line.split_once('=')?;
    Some(key.trim()).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{OrAuto, Switch};

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("c.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read_by_the_parsers_of_the_command_line() {
        let config = parse(
            "[defaults]\nlanes = 4\nwindow = \"auto\"\nfsync = true\npreserve = [\"mode\", \
             \"times\"]\nexclude = [\"*.o\"]\n[profile.night]\nprofile = \"safe\"\n",
        )
        .unwrap();
        assert_eq!(config.defaults.lanes.unwrap().0.unwrap().0, 4);
        assert_eq!(config.defaults.window, Some(OrAuto(None)));
        assert_eq!(config.defaults.fsync, Some(Switch(true)));
        assert!(config.defaults.preserve.unwrap().mode);
        assert_eq!(config.defaults.exclude.len(), 1);
        assert_eq!(config.profile["night"].profile.as_deref(), Some("safe"));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = parse("[defaults]\nlanes = 4\nfsnyc = true\n").unwrap_err();
        assert!(error.starts_with("c.toml:3: unknown field `fsnyc`, expected one of"), "{error}");
        let error = parse("[remote.a]\nurl = \"/x\"\npasword = \"x\"\n").unwrap_err();
        assert!(error.starts_with("c.toml:3: unknown field `pasword`"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_named_with_its_key() {
        let error = parse("[profile.p]\n\nlanes = 0\n").unwrap_err();
        assert_eq!(error, "c.toml:3: lanes: '0' is not a number between 1 and 256, nor 'auto'");
        let error = parse("[defaults]\nmemory = \"1M\"\n").unwrap_err();
        assert!(error.starts_with("c.toml:2: memory: '1M' is not between 8M and"), "{error}");
    }

    #[test]
    fn headers_of_a_remote_are_checked_and_never_repeated() {
        let config =
            |headers: &str| parse(&format!("[remote.a]\nurl = \"https://a\"\n{headers}\n"));
        let remote =
            &config("headers = { X-Token = \"geheim\", X-Level = 3 }").unwrap().remote["a"];
        let fields = remote.headers.as_ref().unwrap().fields();
        assert_eq!(
            (fields["x-token"].as_bytes(), fields["x-level"].as_bytes()),
            (&b"geheim"[..], &b"3"[..])
        );
        assert!(!format!("{remote:?}").contains("geheim"));
        for (headers, cause) in [
            ("headers = { Host = \"geheim\" }", "host cannot be set"),
            ("headers = { X = \"geheim\\r\\nY: z\" }", "the value of x has a line break"),
            ("headers = \"X: geheim\"", "not a table of names and texts"),
            ("headers = { X = 4.2 }", "not a table of names and texts"),
            ("headers = 42", "not a table of names and texts"),
        ] {
            let error = config(headers).unwrap_err();
            assert!(error.starts_with("c.toml:3: ") && error.contains(cause), "{error}");
            assert!(
                !error.contains("geheim") && !error.contains("42") && !error.contains("4.2"),
                "{error}"
            );
        }
    }

    #[test]
    fn broken_toml_names_its_line() {
        let error = parse("[defaults]\nlanes = \n").unwrap_err();
        assert!(error.starts_with("c.toml:2:"), "{error}");
    }
}
