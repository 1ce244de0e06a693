//! Scenarios from their file: combinations of protocols, links, directions and data sets.
//!
//! One `[[scenario]]` names several of each; every combination is a scenario of its own with a name
//! such as `sftp/200ms-500mbit/download/one`. Everything is checked here once: a [`Plan`] has only
//! names that exist and valid values.

use std::collections::BTreeMap;

use globset::{Glob, GlobBuilder};
use serde::Deserialize;

use crate::data::DataSpec;
use crate::link::{LinkSpec, LinkTable};
use crate::record::Measure;

/// The scenarios that come with the program.
pub const BUILT_IN: &str = include_str!("../scenarios.toml");

/// The link's name that means the loopback device.
const LOOPBACK: &str = "loopback";

/// All scenarios of a file.
#[derive(Debug)]
pub struct Plan {
    sets: BTreeMap<String, Vec<String>>,
    scenarios: Vec<Scenario>,
}

/// One combination of protocol, link, direction and data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its full name.
    pub name: String,
    /// Its title in reports.
    pub title: String,
    /// What is measured.
    pub measure: Measure,
    /// `local`, or a protocol that a server speaks.
    pub protocol: Protocol,
    /// The network between client and server.
    pub path: NetworkPath,
    /// The direction of the data.
    pub direction: Direction,
    /// The data set's name, by which tools choose their settings.
    pub data_name: String,
    /// The data set.
    pub data: DataSpec,
    /// Where the data is stored.
    pub storage: Storage,
    /// Counted runs of each tool.
    pub rounds: u32,
    /// Seconds after which a run is stopped.
    pub time_limit: u64,
}

/// A protocol, and the server for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// No network.
    Local,
    /// OpenSSH's sshd.
    Sftp,
    /// nginx.
    Http,
    /// nginx with TLS.
    Https,
    /// nginx that limits each response to 1 MiB/s after its first MiB, and a client to 12 connections.
    HttpLimited,
    /// Apache's mod_dav.
    Dav,
    /// The same with TLS.
    Davs,
    /// nginx's own WebDAV.
    DavNginx,
    /// vsftpd.
    Ftp,
    /// The same with TLS, by `AUTH TLS`.
    Ftps,
    /// `haul serve sftp`.
    HaulSftp,
    /// `haul serve dav`.
    HaulDav,
    /// The same with TLS.
    HaulDavs,
    /// `haul share`.
    Peer,
    /// The same, with an IPv6 address in the ticket that does not respond.
    PeerBlackHole,
    /// The same, but only through `haul bridge` in the middle of the path.
    PeerBridge,
}

/// The network between client and server.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkPath {
    /// No network: a local copy, without a server.
    None,
    /// The loopback device of a namespace.
    Loopback,
    /// An emulated link.
    Link(LinkSpec),
}

/// The direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From one directory to another.
    Copy,
    /// From the server.
    Download,
    /// To the server.
    Upload,
}

/// Where the data is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// The work directory.
    #[default]
    Disk,
    /// A new file system for each result, where this machine can make one; otherwise the work directory.
    Fresh,
    /// A tmpfs, so that no disk limits a link.
    Ram,
}

impl Plan {
    /// Reads a scenario file; `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let file: FileTable = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        let in_file = |error| format!("{name}: {error}");
        let mut links = BTreeMap::new();
        for (link, table) in file.links {
            let spec = LinkSpec::try_from(table)
                .map_err(|error| format!("{name}: [links.{link}]: {error}"))?;
            links.insert(link, spec);
        }
        let mut scenarios: Vec<Scenario> = Vec::new();
        for table in &file.scenario {
            for scenario in table.multiply(&links, &file.data).map_err(in_file)? {
                if scenarios.iter().any(|other| other.name == scenario.name) {
                    return Err(format!("{name}: two scenarios are named {}", scenario.name));
                }
                scenarios.push(scenario);
            }
        }
        let plan = Self { sets: file.sets, scenarios };
        for (set, patterns) in &plan.sets {
            for pattern in patterns {
                if plan.matching(pattern).map_err(in_file)?.is_empty() {
                    return Err(format!("{name}: [sets] {set}: '{pattern}' matches no scenario"));
                }
            }
        }
        Ok(plan)
    }

    /// Sets and their patterns.
    pub fn sets(&self) -> &BTreeMap<String, Vec<String>> {
        &self.sets
    }

    /// All scenarios, in the order of the file.
    pub fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// The scenarios that `words` name: sets, full names, their first parts, or patterns with `*`. Each once,
    /// in the order of the file.
    pub fn choose(&self, words: &[String]) -> Result<Vec<&Scenario>, String> {
        let mut chosen = vec![false; self.scenarios.len()];
        for word in words {
            let one = std::slice::from_ref(word);
            for pattern in self.sets.get(word).map_or(one, Vec::as_slice) {
                let matching = self.matching(pattern)?;
                if matching.is_empty() {
                    return Err(format!(
                        "'{pattern}' is neither a set nor matches a scenario; `haul-bench list` shows them"
                    ));
                }
                for index in matching {
                    chosen[index] = true;
                }
            }
        }
        Ok(self.scenarios.iter().zip(chosen).filter(|(_, yes)| *yes).map(|(one, _)| one).collect())
    }

    fn matching(&self, pattern: &str) -> Result<Vec<usize>, String> {
        // The first parts of a name, such as `local` or `sftp/200ms-500mbit`, match all below them.
        let glob = |text: &str| -> Result<Glob, String> {
            GlobBuilder::new(text)
                .literal_separator(false)
                .build()
                .map_err(|error| format!("'{pattern}' is not a valid pattern: {error}"))
        };
        let whole = glob(pattern)?.compile_matcher();
        let below = glob(&format!("{pattern}/*"))?.compile_matcher();
        let matches = |name: &str| whole.is_match(name) || below.is_match(name);
        Ok((0..self.scenarios.len()).filter(|&n| matches(&self.scenarios[n].name)).collect())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default)]
    links: BTreeMap<String, LinkTable>,
    data: BTreeMap<String, DataTable>,
    #[serde(default)]
    sets: BTreeMap<String, Vec<String>>,
    scenario: Vec<ScenarioTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataTable {
    /// Its name in titles, such as "one large file".
    title: String,
    #[serde(flatten)]
    spec: DataSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioTable {
    #[serde(default = "transfer")]
    measure: Measure,
    protocols: Vec<Protocol>,
    #[serde(default)]
    links: Vec<String>,
    #[serde(default)]
    directions: Vec<Direction>,
    data: Vec<String>,
    #[serde(default)]
    storage: Storage,
    rounds: u32,
    #[serde(default = "ten_minutes")]
    time_limit: u64,
}

fn transfer() -> Measure {
    Measure::Transfer
}

fn ten_minutes() -> u64 {
    600
}

impl ScenarioTable {
    fn multiply(
        &self,
        links: &BTreeMap<String, LinkSpec>,
        data: &BTreeMap<String, DataTable>,
    ) -> Result<Vec<Scenario>, String> {
        if self.rounds == 0 {
            return Err("a scenario needs rounds".to_owned());
        }
        let mut paths = Vec::new();
        for name in &self.links {
            let path = match links.get(name) {
                _ if name == LOOPBACK => NetworkPath::Loopback,
                Some(spec) => NetworkPath::Link(spec.clone()),
                None => return Err(format!("there is no [links.{name}]")),
            };
            paths.push((name.as_str(), path));
        }
        let mut scenarios = Vec::new();
        for &protocol in &self.protocols {
            let local = [("", NetworkPath::None)];
            let copy = [Direction::Copy];
            let (download, upload) = ([Direction::Download], [Direction::Upload]);
            let (paths, directions): (&[_], &[_]) = match (protocol, self.measure) {
                (Protocol::Local, _) => (&local, &copy),
                (_, Measure::Transfer) => (&paths, &self.directions),
                (_, Measure::MountWrite) => (&paths, &upload),
                _ => (&paths, &download),
            };
            if paths.is_empty() || directions.is_empty() {
                return Err(format!("a scenario over {protocol} needs links and directions"));
            }
            for (link, path) in paths {
                for &direction in directions {
                    for name in &self.data {
                        let data =
                            data.get(name).ok_or_else(|| format!("there is no [data.{name}]"))?;
                        scenarios.push(self.one(protocol, (link, path), direction, (name, data)));
                    }
                }
            }
        }
        Ok(scenarios)
    }

    fn one(
        &self,
        protocol: Protocol,
        (link, path): (&str, &NetworkPath),
        direction: Direction,
        (data_name, data): (&str, &DataTable),
    ) -> Scenario {
        let over = match path {
            NetworkPath::None => String::new(),
            NetworkPath::Loopback => ", loopback".to_owned(),
            NetworkPath::Link(spec) => format!(", {spec}"),
        };
        let what = &data.title;
        let (name, title) = match (self.measure, direction) {
            (_, Direction::Copy) => (format!("local/{data_name}"), format!("Local copy of {what}")),
            (Measure::Transfer, Direction::Download) => (
                format!("{protocol}/{link}/download/{data_name}"),
                format!("{} download of {what}{over}", protocol.title()),
            ),
            (Measure::Transfer, Direction::Upload) => (
                format!("{protocol}/{link}/upload/{data_name}"),
                format!("{} upload of {what}{over}", protocol.title()),
            ),
            (Measure::Connect, _) => (
                format!("{protocol}/{link}/connect"),
                format!("{}: connecting and fetching one byte{over}", protocol.title()),
            ),
            (Measure::FirstByte, _) => (
                format!("{protocol}/{link}/first-byte"),
                format!("{}: first byte of {what}{over}", protocol.title()),
            ),
            (Measure::Mount, _) => (
                format!("{protocol}/{link}/mount/{data_name}"),
                format!("{}: {what} read through a mount{over}", protocol.title()),
            ),
            (Measure::MountRandom, _) => (
                format!("{protocol}/{link}/mount-random/{data_name}"),
                format!("{}: random reads of 64 KiB in a mount of {what}{over}", protocol.title()),
            ),
            (Measure::MountFind, _) => (
                format!("{protocol}/{link}/mount-find/{data_name}"),
                format!("{}: find in a mount of {what}{over}", protocol.title()),
            ),
            (Measure::MountList, _) => (
                format!("{protocol}/{link}/mount-ls/{data_name}"),
                format!("{}: ls -lR in a mount of {what}{over}", protocol.title()),
            ),
            (Measure::MountStatus, _) => (
                format!("{protocol}/{link}/mount-git/{data_name}"),
                format!("{}: git status in a mount of {what}{over}", protocol.title()),
            ),
            (Measure::MountWrite, _) => (
                format!("{protocol}/{link}/mount-write/{data_name}"),
                format!("{}: {what} written into a mount{over}", protocol.title()),
            ),
        };
        Scenario {
            name,
            title,
            measure: self.measure,
            protocol,
            path: path.clone(),
            direction,
            data_name: data_name.to_owned(),
            data: data.spec,
            storage: self.storage,
            rounds: self.rounds,
            time_limit: self.time_limit,
        }
    }
}

impl Scenario {
    /// Payload bytes per second that the link carries at most in the direction of the data; `None` if there is no link,
    /// or its rate is unlimited or changes.
    pub fn payload_limit(&self) -> Option<f64> {
        let NetworkPath::Link(link) = &self.path else { return None };
        if link.changes.iter().any(|change| change.up.or(change.down).is_some()) {
            return None;
        }
        let rate = if self.direction == Direction::Upload { link.up } else { link.down };
        rate.map(LinkSpec::payload_limit)
    }
}

impl Protocol {
    fn title(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Sftp => "SFTP",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::HttpLimited => "HTTP (12 connections of 1 MiB/s)",
            Self::Dav => "WebDAV (Apache)",
            Self::Davs => "WebDAV with TLS (Apache)",
            Self::DavNginx => "WebDAV (nginx)",
            Self::Ftp => "FTP",
            Self::Ftps => "FTP with TLS",
            Self::HaulSftp => "SFTP (haul serve)",
            Self::HaulDav => "WebDAV (haul serve)",
            Self::HaulDavs => "WebDAV with TLS (haul serve)",
            Self::Peer => "peer (haul share)",
            Self::PeerBlackHole => "peer (haul share, dead IPv6 address)",
            Self::PeerBridge => "peer (haul share through haul bridge)",
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Sftp => "sftp",
            Self::Http => "http",
            Self::Https => "https",
            Self::HttpLimited => "http-limited",
            Self::Dav => "dav",
            Self::Davs => "davs",
            Self::DavNginx => "dav-nginx",
            Self::Ftp => "ftp",
            Self::Ftps => "ftps",
            Self::HaulSftp => "haul-sftp",
            Self::HaulDav => "haul-dav",
            Self::HaulDavs => "haul-davs",
            Self::Peer => "peer",
            Self::PeerBlackHole => "peer-black-hole",
            Self::PeerBridge => "peer-bridge",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_scenarios_are_valid() {
        let plan = Plan::parse("scenarios.toml", BUILT_IN).expect("they can be read");
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let chosen = plan.choose(&words).expect("they exist");
            chosen.iter().map(|scenario| scenario.name.clone()).collect()
        };
        assert!(names(&["quick"]).iter().any(|name| name.starts_with("local/")));
        assert_eq!(names(&["full"]).len(), plan.scenarios().len());
        assert_eq!(names(&["sftp/200ms-500mbit/download/one", "sftp/*/download/one"]).len(), {
            names(&["sftp/*/download/one"]).len()
        });
        assert!(names(&["sftp"]).iter().all(|name| name.starts_with("sftp/")));
    }

    #[test]
    fn writing_into_a_mount_is_an_upload_and_reading_from_it_a_download() {
        let text = "[data.one]\ntitle = 'a file'\nfiles = 1\nbytes = 1\n\
            [[scenario]]\nmeasure = 'mount_write'\nprotocols = ['sftp']\nlinks = ['loopback']\n\
            data = ['one']\nrounds = 1\n\
            [[scenario]]\nmeasure = 'mount_random'\nprotocols = ['sftp']\nlinks = ['loopback']\n\
            data = ['one']\nrounds = 1\n";
        let plan = Plan::parse("my.toml", text).expect("it can be read");
        let each = plan.scenarios().iter().map(|one| (one.name.as_str(), one.direction));
        let expected = [
            ("sftp/loopback/mount-write/one", Direction::Upload),
            ("sftp/loopback/mount-random/one", Direction::Download),
        ];
        assert_eq!(each.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_error_names_the_mistake() {
        let parse = |text: &str| Plan::parse("my.toml", text).expect_err("a mistake");
        let data = "[data.one]\ntitle = 'a file'\nfiles = 1\nbytes = 1\n";
        let scenario =
            |rest: &str| parse(&format!("{data}[[scenario]]\nrounds = 1\ndata = ['one']\n{rest}"));
        assert!(scenario("protocols = ['gopher']").contains("gopher"));
        assert!(
            scenario("protocols = ['sftp']\nlinks = ['moon']\ndirections = ['upload']")
                .contains("[links.moon]")
        );
        assert!(scenario("protocols = ['sftp']").contains("needs links"));
        let local = "[[scenario]]\nprotocols = ['local']\ndata = ['one']\nrounds = 1\n";
        let link = |rest: &str| parse(&format!("{data}[links.x]\n{rest}\n{local}"));
        let negative = link("rtt_ms = -1");
        assert_eq!(negative, "my.toml: [links.x]: -1 ms is not between 0 and a minute");
        let missing = link("mbit = 1");
        assert!(missing.starts_with("my.toml: ") && missing.contains("`rtt_ms`"), "{missing}");
        // Formerly, unknown keys of a data set were ignored.
        let misspelt = parse(&format!("{data}directory = 9\n{local}"));
        assert!(
            misspelt.starts_with("my.toml: ") && misspelt.contains("`directory`"),
            "{misspelt}"
        );
        let plan = Plan::parse("scenarios.toml", BUILT_IN).expect("they can be read");
        assert!(plan.choose(&["nothing".to_owned()]).expect_err("no such").contains("'nothing'"));
    }
}
