//! `haul-bench report`: tables and a page of results.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use haul_bench::report::{self, Results};

use crate::ReportArguments;

/// Prints the tables or writes them to a file; writes the chart and the page if their options are given.
pub(crate) fn report(arguments: &ReportArguments) -> Result<ExitCode, String> {
    let mut texts = Vec::new();
    for path in &arguments.results {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        texts.push((name, text));
    }
    let read = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let results = Results::read(read).map_err(|error| error.to_string())?;
    let write = |path: &std::path::Path, text: &str| {
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let tables = report::markdown(&results);
    match &arguments.markdown {
        Some(path) => write(path, &tables)?,
        None => io::stdout().write_all(tables.as_bytes()).map_err(|error| error.to_string())?,
    }
    if let Some(path) = &arguments.chart {
        write(path, &report::chart(&results)?)?;
    }
    if let Some(path) = &arguments.html {
        write(path, &report::html(&results))?;
    }
    Ok(ExitCode::SUCCESS)
}
