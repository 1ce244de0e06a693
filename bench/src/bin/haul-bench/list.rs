//! `haul-bench list`: prints sets, scenarios and tools.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::FileArguments;
use crate::run::{beside, find_tools, plan};

pub(crate) fn list(files: &FileArguments) -> Result<ExitCode, String> {
    let text = text(files).map_err(|error| error.to_string())??;
    io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn text(files: &FileArguments) -> Result<Result<String, String>, std::fmt::Error> {
    let (plan, tools) = match (plan(files), find_tools(files, beside("haul").as_deref())) {
        (Ok(plan), Ok(tools)) => (plan, tools),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    let mut text = "sets\n".to_owned();
    for (set, patterns) in plan.sets() {
        writeln!(text, "  {set:10} {}", patterns.join(" "))?;
    }
    writeln!(text, "\nscenarios")?;
    let width = plan.scenarios().iter().map(|one| one.name.len()).max().unwrap_or(0);
    for scenario in plan.scenarios() {
        writeln!(text, "  {:width$}  {}", scenario.name, scenario.title)?;
    }
    writeln!(text, "\ntools")?;
    for tool in tools.all() {
        match &tool.found {
            Ok(found) => writeln!(text, "  {:14} {}", tool.name, found.version)?,
            Err(cause) => writeln!(text, "  {:14} missing: {cause}", tool.name)?,
        }
    }
    Ok(Ok(text))
}
