//! The head of each section of the page: machine, list of contents, and one table of all scenarios.

use super::markup::{escaped, identifier};
use super::palette::Palette;
use super::results::{ScenarioResults, Section};
use super::row::Row;
use super::table;
use super::units;

/// The machine's facts and the versions of what ran on it.
pub(super) fn machine(section: &Section) -> String {
    let mut facts: Vec<(&str, String)> = table::machine_facts(&section.machine);
    let versions = table::versions(section);
    if !versions.is_empty() {
        facts.push(("Versions", versions.join("; ")));
    }
    let facts = facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escaped(value)));
    format!("<dl class=\"facts\">\n{}</dl>\n", facts.collect::<String>())
}

/// Links to the scenarios.
pub(super) fn contents(section_index: usize, section: &Section) -> String {
    let entries = section.scenarios.iter().enumerate().map(|(index, results)| {
        format!(
            "<li><a href=\"#{}\">{}</a> <small>{}</small></li>\n",
            identifier(section_index, index),
            escaped(&results.scenario.title),
            name(results)
        )
    });
    format!("<nav aria-label=\"Scenarios\">\n<ol>\n{}</ol>\n</nav>\n", entries.collect::<String>())
}

/// A table with a row for each scenario and a column for each tool; a tool's other settings are below its default ones.
pub(super) fn overview(section_index: usize, section: &Section, palette: &Palette) -> String {
    let tools: Vec<&str> =
        palette.tools().filter(|tool| section.rows().any(|row| row.tool == *tool)).collect();
    let heads = tools.iter().map(|tool| {
        format!(
            "<th scope=\"col\"><span class=\"swatch\" style=\"background:{}\"></span>{}</th>",
            palette.ink(tool).css(),
            escaped(tool)
        )
    });
    let rows = section.scenarios.iter().enumerate().map(|(index, results)| {
        let cells = tools.iter().map(|tool| format!("<td>{}</td>", cell(results, tool)));
        format!(
            "<tr><th scope=\"row\"><a href=\"#{}\">{}</a><small>{}</small></th>{}</tr>\n",
            identifier(section_index, index),
            escaped(&results.scenario.title),
            name(results),
            cells.collect::<String>()
        )
    });
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Overview\">\n\
         <table class=\"overview\">\n<thead><tr><th scope=\"col\">Scenario</th>{}</tr></thead>\n\
         <tbody>\n{}</tbody>\n</table>\n</div>\n",
        heads.collect::<String>(),
        rows.collect::<String>()
    )
}

fn cell(results: &ScenarioResults, tool: &str) -> String {
    let mut rows: Vec<&Row> = results.rows.iter().filter(|row| row.tool == tool).collect();
    rows.sort_by_key(|row| !row.is_default());
    let fastest = results.rows.first();
    let lines = rows.into_iter().map(|row| {
        let settings = if row.is_default() {
            String::new()
        } else {
            format!("<small>{}</small> ", escaped(&row.settings))
        };
        let figures: Vec<String> = figures(row).iter().map(|text| escaped(text)).collect();
        let figures = figures.join("<br>");
        let figures = match figures.is_empty() {
            true => format!("<span class=\"none\">{}</span>", row.status_text()),
            false if fastest == Some(row) => format!("<b>{figures}</b>"),
            false => figures,
        };
        let share = row.share.map(|share| format!(" <small>{}</small>", units::percent(share)));
        let failed = (row.correct_runs() > 0 && !row.failures.is_empty())
            .then(|| format!("<div class=\"none\">{}</div>", row.status_text()));
        format!(
            "<div>{settings}{figures}{}{}</div>",
            share.unwrap_or_default(),
            failed.unwrap_or_default()
        )
    });
    lines.collect()
}

fn figures(row: &Row) -> Vec<String> {
    let latency = row.latency.map(|latency| format!("{} ms", units::milliseconds(latency.median)));
    let rate = row.rate.map(|rate| units::rate(rate.median));
    let parts = row.parts.iter();
    let parts = parts.map(|(name, s)| format!("{} s {name}", units::significant(s.median)));
    latency.into_iter().chain(rate).chain(parts).collect()
}

/// A scenario's name, which may wrap after its slashes.
fn name(results: &ScenarioResults) -> String {
    escaped(&results.scenario.name).replace('/', "/<wbr>")
}
