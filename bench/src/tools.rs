//! The tools that are compared, from their file: which command each runs for which scenario.
//!
//! A command is a shell script that takes everything from variables (`$SRC`, `$DST`, `$URL`, …; the
//! file lists them), so that readers can run it themselves. A tool is added by adding it to the file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::record::Measure;
use crate::scenario::{Direction, Protocol, Scenario};

/// The tools that come with the program.
pub const BUILT_IN: &str = include_str!("../tools.toml");

/// All tools, found or not.
#[derive(Debug)]
pub struct Tools(Vec<Tool>);

/// One tool.
#[derive(Debug)]
pub struct Tool {
    /// Its name in tables.
    pub name: String,
    /// Where it is, or why it is missing.
    pub found: Result<Found, String>,
    uses: Vec<Use>,
}

/// A tool on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The program.
    pub path: PathBuf,
    /// Its version, as it prints it.
    pub version: String,
}

/// One way of using a tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    #[serde(default)]
    measure: Option<Measure>,
    protocols: Vec<Protocol>,
    #[serde(default)]
    directions: Vec<Direction>,
    /// Names of data sets; empty for all.
    #[serde(default)]
    data: Vec<String>,
    /// `default`, or a label that distinguishes it from the tool's other uses.
    #[serde(default = "default_settings")]
    pub settings: String,
    /// The command, run by `sh -c`.
    pub run: String,
    /// The command at the server's end, for tools that connect to each other and not to a server.
    #[serde(default)]
    pub far: Option<Far>,
}

/// A command that runs at the server's end of the link for the time of one run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// The command, run by `sh -c`.
    pub run: String,
    /// A text in its output, after which the other end may start.
    pub ready: String,
}

fn default_settings() -> String {
    "default".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    tool: Vec<ToolTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolTable {
    name: String,
    /// Its program, if not named like the tool.
    program: Option<String>,
    /// A command that prints its version; the first line with a digit counts.
    version: String,
    /// Its package in Debian.
    package: Option<String>,
    /// How to install it, if Debian has no package.
    install: Option<String>,
    /// Programs that it needs in its own directory.
    #[serde(default)]
    beside: Vec<String>,
    #[serde(rename = "use", default)]
    uses: Vec<Use>,
}

impl Tools {
    /// Reads a tools file and looks for each tool: at its path in `given`, at that in `own` (programs
    /// of this source, which the file need not name), or on `PATH`.
    pub fn find(
        file: &str,
        text: &str,
        given: &BTreeMap<String, PathBuf>,
        own: &BTreeMap<String, PathBuf>,
    ) -> Result<Self, String> {
        let table: FileTable = toml::from_str(text).map_err(|error| format!("{file}: {error}"))?;
        if let Some(name) = given.keys().find(|name| table.tool.iter().all(|t| t.name != **name)) {
            return Err(format!("--peer {name}: {file} has no such tool"));
        }
        let tools = table.tool.into_iter().map(|tool| {
            let program = tool.program.as_deref().unwrap_or(&tool.name);
            let path = match given.get(&tool.name).or_else(|| own.get(&tool.name)) {
                Some(path) if is_program(path) => Ok(path.clone()),
                Some(path) => Err(format!("{} is not an executable", path.display())),
                None => on_path(program).ok_or_else(|| tool.advice(program)),
            };
            let path = path.and_then(|path| tool.complete(path));
            let found =
                path.map(|path| Found { version: version(&tool.version, &tool.name, &path), path });
            Tool { name: tool.name, found, uses: tool.uses }
        });
        Ok(Self(tools.collect()))
    }

    /// Keeps the tools in `names` only, all if it is empty; an unknown name is an error.
    pub fn only(mut self, names: &[String]) -> Result<Self, String> {
        if let Some(name) = names.iter().find(|name| self.0.iter().all(|tool| tool.name != **name))
        {
            return Err(format!("there is no tool named '{name}'"));
        }
        if !names.is_empty() {
            self.0.retain(|tool| names.contains(&tool.name));
        }
        Ok(self)
    }

    /// All tools.
    pub fn all(&self) -> &[Tool] {
        &self.0
    }

    /// The tools for a scenario, and their uses.
    pub fn for_scenario<'a>(&'a self, scenario: &Scenario) -> Vec<(&'a Tool, &'a Use)> {
        let pairs = self.0.iter().flat_map(|tool| tool.uses.iter().map(move |u| (tool, u)));
        pairs.filter(|(_, u)| u.fits(scenario)).collect()
    }
}

impl Use {
    /// The command for a reader of the results, with that of the far end.
    pub fn described(&self) -> String {
        match &self.far {
            Some(far) => {
                format!("{}\n\nAt the far end:\n{}", self.run.trim_end(), far.run.trim_end())
            }
            None => self.run.clone(),
        }
    }

    fn fits(&self, scenario: &Scenario) -> bool {
        let any = |set: bool, empty: bool| set || empty;
        self.measure.unwrap_or(Measure::Transfer) == scenario.measure.as_used()
            && self.protocols.contains(&scenario.protocol)
            && any(self.directions.contains(&scenario.direction), self.directions.is_empty())
            && any(self.data.contains(&scenario.data_name), self.data.is_empty())
    }
}

impl Measure {
    /// The measure whose commands are used for this one: connecting is a transfer of one byte, and all measures that
    /// only read from a mount use the commands of [`Self::Mount`].
    fn as_used(self) -> Self {
        match self {
            Self::Connect => Self::Transfer,
            Self::MountRandom | Self::MountFind | Self::MountList | Self::MountStatus => {
                Self::Mount
            }
            Self::Transfer | Self::FirstByte | Self::Mount | Self::MountWrite => self,
        }
    }
}

impl ToolTable {
    fn advice(&self, program: &str) -> String {
        match (&self.package, &self.install) {
            (Some(package), _) => format!("{program} is not installed (apt-get install {package})"),
            (None, Some(install)) => {
                format!("{program} is not on PATH ({install}; --peer {}=PATH)", self.name)
            }
            (None, None) => format!("{program} is not on PATH (--peer {}=PATH)", self.name),
        }
    }

    /// The path, if the programs that the tool needs are beside it.
    fn complete(&self, path: PathBuf) -> Result<PathBuf, String> {
        // Installers of Python programs put only a link to them on PATH.
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        match self.beside.iter().find(|name| !is_program(&real.with_file_name(name))) {
            Some(name) => {
                let install = self.install.as_deref().or(self.package.as_deref());
                let advice = install.map(|how| format!(" ({how})")).unwrap_or_default();
                Err(format!("{name} is not beside {}{advice}", path.display()))
            }
            None => Ok(path),
        }
    }
}

/// The first program of that name on `PATH`, or in the directories of system programs.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The first line with a digit that the version command prints, without the tool's name and cut to 60 characters;
/// `unknown` if there is none. `$TOOL` is the program.
fn version(command: &str, name: &str, path: &Path) -> String {
    let output = Command::new("sh")
        .args([OsStr::new("-c"), command.as_ref()])
        .env("TOOL", path)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let Ok(output) = output else { return "unknown".to_owned() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()));
    let line = line.unwrap_or("unknown").trim();
    line.strip_prefix(name).unwrap_or(line).trim().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{self, Plan};

    #[test]
    fn every_built_in_scenario_has_a_tool_and_every_use_a_scenario() {
        let tools = Tools::find("tools.toml", BUILT_IN, &BTreeMap::new(), &BTreeMap::new())
            .expect("readable");
        let plan = Plan::parse("scenarios.toml", scenario::BUILT_IN).expect("readable");
        for scenario in plan.scenarios() {
            assert!(!tools.for_scenario(scenario).is_empty(), "{} has no tool", scenario.name);
        }
        for tool in tools.all() {
            for used in &tool.uses {
                assert!(
                    plan.scenarios().iter().any(|scenario| used.fits(scenario)),
                    "{}: {} is for no scenario",
                    tool.name,
                    used.run
                );
            }
        }
    }

    #[test]
    fn rows_of_a_scenario_have_distinct_names() {
        let tools = Tools::find("tools.toml", BUILT_IN, &BTreeMap::new(), &BTreeMap::new())
            .expect("readable");
        let plan = Plan::parse("scenarios.toml", scenario::BUILT_IN).expect("readable");
        for scenario in plan.scenarios() {
            let mut names: Vec<_> = tools
                .for_scenario(scenario)
                .iter()
                .map(|(tool, used)| (tool.name.clone(), used.settings.clone()))
                .collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all, "{}: {names:?}", scenario.name);
        }
    }

    #[test]
    fn a_missing_tool_is_reported_with_its_package_and_an_unknown_peer_is_an_error() {
        let text = "[[tool]]\nname = 'zzz'\nversion = 'x'\npackage = 'zzz-tools'\n";
        let own = BTreeMap::from([("haul".to_owned(), PathBuf::from("/bin/true"))]);
        let tools = Tools::find("t.toml", text, &BTreeMap::new(), &own).expect("readable");
        assert_eq!(
            tools.all()[0].found,
            Err("zzz is not installed (apt-get install zzz-tools)".to_owned())
        );
        let given = BTreeMap::from([("yyy".to_owned(), PathBuf::from("/bin/true"))]);
        let error = Tools::find("t.toml", text, &given, &own).expect_err("no such tool");
        assert_eq!(error, "--peer yyy: t.toml has no such tool");
    }

    #[test]
    fn a_tool_without_a_package_is_reported_with_the_command_that_installs_it() {
        let text = "[[tool]]\nname = 'zzz'\nversion = 'x'\ninstall = 'go install example/zzz@v1'\n";
        let tools = Tools::find("t.toml", text, &BTreeMap::new(), &BTreeMap::new());
        let expected = "zzz is not on PATH (go install example/zzz@v1; --peer zzz=PATH)".to_owned();
        assert_eq!(tools.expect("readable").all()[0].found, Err(expected));
    }

    #[test]
    fn a_tool_without_a_program_that_it_needs_counts_as_missing() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let program = |name: &str| {
            std::fs::write(at(name), "#!/bin/sh\necho 1\n").expect("writable");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(at(name), mode).expect("its own file");
        };
        program("tool");
        std::os::unix::fs::symlink(at("tool"), at("link")).expect("a link");
        let text =
            "[[tool]]\nname = 'zzz'\nversion = 'echo 1'\ninstall = 'make'\nbeside = ['relay']\n";
        let given = BTreeMap::from([("zzz".to_owned(), at("link"))]);
        let found = || {
            let tools = Tools::find("t.toml", text, &given, &BTreeMap::new()).expect("readable");
            tools.all()[0].found.clone().map(|found| found.path)
        };
        let error = found().expect_err("no relay");
        assert!(error.starts_with("relay is not beside ") && error.ends_with("(make)"), "{error}");
        program("relay");
        assert_eq!(found(), Ok(at("link")));
    }

    #[test]
    fn tools_with_a_far_end_show_both_commands() {
        let text = "[[tool]]\nname = 'zzz'\nversion = 'x'\n[[tool.use]]\nprotocols = ['peer']\n\
                    run = 'take'\n[tool.use.far]\nrun = 'give'\nready = 'code'\n";
        let tools = Tools::find("t.toml", text, &BTreeMap::new(), &BTreeMap::new());
        let tools = tools.expect("readable");
        let used = &tools.all()[0].uses[0];
        assert_eq!(used.described(), "take\n\nAt the far end:\ngive");
        assert_eq!(used.far.as_ref().map(|far| far.ready.as_str()), Some("code"));
        assert!(
            Tools::find(
                "t.toml",
                &text.replace("ready", "when"),
                &BTreeMap::new(),
                &BTreeMap::new()
            )
            .is_err()
        );
    }

    #[test]
    fn a_program_of_this_source_is_used_unless_another_one_is_given() {
        let text = "[[tool]]\nname = 'haul'\nversion = 'x'\n";
        let at = |path: &str| BTreeMap::from([("haul".to_owned(), PathBuf::from(path))]);
        let path = |given: &BTreeMap<String, PathBuf>| {
            let tools = Tools::find("t.toml", text, given, &at("/bin/true")).expect("readable");
            tools.all()[0].found.clone().map(|found| found.path)
        };
        assert_eq!(path(&BTreeMap::new()), Ok("/bin/true".into()));
        assert_eq!(path(&at("/bin/false")), Ok("/bin/false".into()));
    }
}
