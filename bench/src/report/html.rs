//! Results as one self-contained HTML page, without scripts, fonts or other files.
//!
//! The page follows the reader's light or dark setting. Only tables scroll sideways, each in a box of its own. All text
//! from results is escaped.

use super::markup::{escaped, identifier};
use super::overview;
use super::palette::Palette;
use super::plots;
use super::results::{Results, ScenarioResults, Section};
use super::table::{self, Table, TableRow};

const STYLE: &str = include_str!("page.css");

/// Writes the results as an HTML page.
pub fn html(results: &Results) -> String {
    let palette = Palette::of(results);
    let sections: String = results
        .sections
        .iter()
        .enumerate()
        .map(|(section_index, section)| section_html(section_index, section, &palette))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>haul: measurements</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Measurements of haul beside its peers</h1>\n{sections}</main>\n</body>\n</html>\n"
    )
}

fn section_html(section_index: usize, section: &Section, palette: &Palette) -> String {
    let scenarios: String = section
        .scenarios
        .iter()
        .enumerate()
        .map(|(index, results)| scenario_html(&identifier(section_index, index), results, palette))
        .collect();
    format!(
        "<h2 class=\"benchmark\">Machine</h2>\n{}<h2>Scenarios</h2>\n{}<h2>Overview</h2>\n<p>Medians. The fastest of a \
         scenario is bold; per cent are of what the link can carry as payload.</p>\n{}{scenarios}",
        overview::machine(section),
        overview::contents(section_index, section),
        overview::overview(section_index, section, palette),
    )
}

fn scenario_html(identifier: &str, results: &ScenarioResults, palette: &Palette) -> String {
    let scenario = &results.scenario;
    let conditions: String = table::conditions(scenario)
        .iter()
        .map(|phrase| format!("<li>{}</li>", escaped(phrase)))
        .collect();
    let flag = if scenario.in_page_cache {
        format!("<p class=\"flag\">{}</p>\n", table::PAGE_CACHE)
    } else {
        String::new()
    };
    let title = escaped(&scenario.title);
    let rows = if results.rows.is_empty() {
        "<p>No runs.</p>\n".to_owned()
    } else {
        format!("{}{}", table_html(&title, &Table::of(results)), commands(results))
    };
    format!(
        "<section id=\"{identifier}\">\n<h2>{title}</h2>\n<p class=\"name\">{}</p>\n\
         <ul class=\"conditions\">{conditions}</ul>\n{flag}{}{rows}</section>\n",
        escaped(&scenario.name),
        plots::figures(results, palette)
    )
}

fn table_html(title: &str, table: &Table) -> String {
    let heads: String = table
        .heads
        .iter()
        .map(|head| format!("<th scope=\"col\">{}</th>", keep_unit_on_line(head)))
        .collect();
    let rows: String = table.rows.iter().map(|row| row_html(row, table.heads.len())).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n\
         <table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

/// A column head with non-breaking spaces before its unit, around `=` and before `/`.
fn keep_unit_on_line(head: &str) -> String {
    let head = escaped(head).replace(" = ", "&nbsp;=&nbsp;").replace(" / ", "&nbsp;/ ");
    match head.rsplit_once(", ") {
        Some((quantity, unit)) if unit.len() <= "MB/s".len() => format!("{quantity},&nbsp;{unit}"),
        _ => head,
    }
}

/// A row, with its note below the figures, or instead of them if there are none.
fn row_html(row: &TableRow, columns: usize) -> String {
    let haul = if row.emphasised { "haul" } else { "" };
    let label = escaped(&row.label);
    let note = row.note.as_deref().map(escaped);
    if let (Some(note), false) = (&note, row.measured) {
        let rest = columns - 1;
        return format!(
            "<tr class=\"{haul}\"><th scope=\"row\">{label}</th><td class=\"note beside\" colspan=\"{rest}\">\
             <div>{note}</div></td></tr>\n"
        );
    }
    let cells: String = row
        .cells
        .iter()
        .map(|cell| format!("<td>{}</td>", cell.as_deref().map_or_else(String::new, escaped)))
        .collect();
    let noted = if note.is_some() { " noted" } else { "" };
    let note = note.map(|note| {
        format!("<tr><td class=\"note\" colspan=\"{columns}\"><div>{note}</div></td></tr>\n")
    });
    format!(
        "<tr class=\"{haul}{noted}\"><th scope=\"row\">{label}</th>{cells}</tr>\n{}",
        note.unwrap_or_default()
    )
}

fn commands(results: &ScenarioResults) -> String {
    let rows: String = results
        .rows
        .iter()
        .map(|row| {
            format!(
                "<dt>{}</dt><dd><p>{}</p><pre>{}</pre></dd>\n",
                escaped(&row.label()),
                escaped(&row.version),
                escaped(&row.command)
            )
        })
        .collect();
    format!("<details><summary>Commands and versions</summary>\n<dl>\n{rows}</dl>\n</details>\n")
}
