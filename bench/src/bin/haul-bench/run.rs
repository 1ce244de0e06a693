//! `haul-bench run`: the front end, which the user starts, and the worker process, which measures.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use haul_bench::guard;
use haul_bench::link::Means;
use haul_bench::run::{self, Settings};
use haul_bench::scenario::{self, NetworkPath, Plan, Scenario, Storage};
use haul_bench::tools::{self, Tools};

use crate::{FileArguments, ReportArguments, RunArguments, report};

/// Checks the arguments, runs the worker under a guard, and prints tables.
pub(crate) fn front(arguments: &RunArguments) -> Result<ExitCode, String> {
    let haul = match &arguments.haul {
        // Absolute, since the tools run in other directories.
        Some(path) => std::path::absolute(path).map_err(|error| error.to_string())?,
        None => built_haul()?,
    };
    let plan = plan(&arguments.files)?;
    let chosen = plan.choose(&arguments.words)?;
    needs_root(&chosen)?;
    // The worker finds the tools again; this only reports errors early.
    tools(arguments, &haul)?;
    let output = match &arguments.output {
        Some(path) => path.clone(),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?;
            format!("haul-bench-{}.jsonl", now.as_secs()).into()
        }
    };
    let output = std::path::absolute(&output).map_err(|error| error.to_string())?;
    let mut worker: Vec<OsString> = vec!["--haul".into(), haul.into()];
    worker.extend(["--output".into(), output.clone().into()]);
    worker.extend(passed_on(arguments));
    let status = guard::run(&arguments.work, &worker).map_err(|error| error.to_string())?;
    if output.exists() {
        let report = ReportArguments {
            results: vec![output.clone()],
            html: arguments.html.clone(),
            markdown: None,
            chart: None,
        };
        // Also after an interrupted run.
        report::report(&report)?;
        print_status(&format!("results are in {}", output.display()));
    }
    Ok(status)
}

/// Runs scenarios in a directory that the guard has created and will remove.
pub(crate) fn worker(directory: &Path, arguments: &RunArguments) -> Result<ExitCode, String> {
    let missing = |what: &str| format!("the worker was started without {what}");
    let haul = arguments.haul.as_ref().ok_or_else(|| missing("--haul"))?;
    let results = arguments.output.clone().ok_or_else(|| missing("--output"))?;
    let plan = plan(&arguments.files)?;
    let chosen = plan.choose(&arguments.words)?;
    let needs_links = chosen.iter().any(|one| matches!(one.path, NetworkPath::Link(_)));
    let settings = Settings {
        work: directory.to_owned(),
        results,
        haul: haul.clone(),
        rounds: arguments.rounds,
        means: match arguments.links {
            _ if !needs_links => None,
            Some(means) => Some(means),
            None => Some(Means::of_this_machine()),
        },
    };
    let tools = tools(arguments, haul)?;
    let tally = run::run(&chosen, &tools, &settings, &mut |line| print_status(line))
        .map_err(|error| error.to_string())?;
    print_status(&format!("{} runs with the right result, {} others", tally.right, tally.wrong));
    Ok(if tally.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments to pass on to the worker.
fn passed_on(arguments: &RunArguments) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: OsString| words.extend([name.into(), value]);
    if let Some(file) = &arguments.files.scenarios {
        option("--scenarios", file.into());
    }
    if let Some(file) = &arguments.files.tools_file {
        option("--tools-file", file.into());
    }
    for (name, path) in &arguments.files.peer {
        let mut value = OsString::from(format!("{name}="));
        value.push(path);
        option("--peer", value);
    }
    for name in &arguments.tools {
        option("--tools", name.into());
    }
    if let Some(rounds) = arguments.rounds {
        option("--rounds", rounds.to_string().into());
    }
    if let Some(means) = arguments.links {
        option("--links", means.to_string().into());
    }
    words.push("--".into());
    words.extend(arguments.words.iter().map(OsString::from));
    words
}

/// The plan of all scenarios, from the given file or else the built-in one.
pub(crate) fn plan(files: &FileArguments) -> Result<Plan, String> {
    let (name, text) = text(files.scenarios.as_deref(), "scenarios.toml", scenario::BUILT_IN)?;
    Plan::parse(&name, &text)
}

/// The tools to measure, with the executable `haul`.
fn tools(arguments: &RunArguments, haul: &Path) -> Result<Tools, String> {
    find_tools(&arguments.files, Some(haul))?.only(&arguments.tools)
}

/// All tools: from the given file or else the built-in one. `haul` is the executable to measure, the plain pipeline the
/// one built along with this program.
pub(crate) fn find_tools(files: &FileArguments, haul: Option<&Path>) -> Result<Tools, String> {
    let (name, text) = text(files.tools_file.as_deref(), "tools.toml", tools::BUILT_IN)?;
    let given: BTreeMap<String, PathBuf> = files.peer.iter().cloned().collect();
    let haul = haul.map(|haul| ("haul".to_owned(), haul.to_owned()));
    let pipeline = beside("plain-pipeline").map(|path| ("plain pipeline".to_owned(), path));
    let own = haul.into_iter().chain(pipeline).collect();
    Tools::find(&name, &text, &given, &own)
}

fn text(file: Option<&Path>, built_in: &str, text: &str) -> Result<(String, String), String> {
    match file {
        None => Ok((built_in.to_owned(), text.to_owned())),
        Some(path) => {
            let name = path.display().to_string();
            fs::read_to_string(path)
                .map(|text| (name.clone(), text))
                .map_err(|e| format!("{name}: {e}"))
        }
    }
}

/// Fails early, not after an hour, if a scenario needs network namespaces or mounts and the user is not root.
fn needs_root(scenarios: &[&Scenario]) -> Result<(), String> {
    let needing =
        scenarios.iter().find(|one| one.path != NetworkPath::None || one.storage == Storage::Ram);
    match needing {
        Some(one) if !rustix::process::geteuid().is_root() => {
            Err(format!("{} needs root: it makes network namespaces and mounts", one.name))
        }
        _ => Ok(()),
    }
}

/// The path of another program that was built along with this one.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(name);
    path.exists().then_some(path)
}

/// The haul built from this source. Under `cargo run` it is built first, so that the current source is measured.
fn built_haul() -> Result<PathBuf, String> {
    if let (Some(cargo), Some(manifest)) =
        (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"))
    {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "haul", "-p", "haul-bench"]).current_dir(manifest);
        if cfg!(not(debug_assertions)) {
            build.arg("--release");
        }
        let status = build.stdin(Stdio::null()).status().map_err(|e| format!("cargo: {e}"))?;
        if !status.success() {
            return Err(format!("building haul: {status}"));
        }
    }
    if cfg!(debug_assertions) {
        print_status("this is a debug build: its figures mean nothing (use --release)");
    }
    beside("haul").ok_or_else(|| "there is no haul beside this program; use --haul PATH".to_owned())
}

/// Prints a status line to standard error.
fn print_status(line: &str) {
    // Failures are ignored: results are in the file.
    drop(writeln!(io::stderr(), "{line}"));
}
