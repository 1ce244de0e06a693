//! Results as Markdown, for pasting: the machine, then a heading and a table for each scenario.
//!
//! All text from tools and the system is escaped: a `|` or a line break in an error message would break the table.

use super::results::{Results, ScenarioResults, Section};
use super::table::{self, Table, TableRow};

/// Writes the results as Markdown.
pub fn markdown(results: &Results) -> String {
    let sections: Vec<String> = results.sections.iter().map(section).collect();
    sections.join("\n")
}

fn section(section: &Section) -> String {
    let mut text = String::from("## Measurements\n\n");
    for (name, value) in table::machine_facts(&section.machine) {
        text.push_str(&format!("- {name}: {}\n", escaped(&value)));
    }
    let versions = table::versions(section);
    if !versions.is_empty() {
        text.push_str(&format!("- Versions: {}\n", escaped(&versions.join("; "))));
    }
    for results in &section.scenarios {
        text.push_str(&scenario(results));
    }
    text
}

fn scenario(results: &ScenarioResults) -> String {
    let scenario = &results.scenario;
    let conditions = table::conditions(scenario).join("; ");
    let mut text = format!(
        "\n### {}\n\n{}: {}.\n",
        escaped(&scenario.title),
        code(&scenario.name),
        escaped(&conditions)
    );
    if scenario.in_page_cache {
        text.push_str(&format!("**{}.**\n", table::PAGE_CACHE));
    }
    if results.rows.is_empty() {
        text.push_str("\nNo runs.\n");
        return text;
    }
    text.push('\n');
    text.push_str(&table_text(&Table::of(results)));
    text
}

fn table_text(table: &Table) -> String {
    let noted = table.rows.iter().any(|row| row.note.is_some());
    let mut heads: Vec<String> = table.heads.iter().map(|head| escaped(head)).collect();
    let mut rules: Vec<&str> = heads.iter().map(|_| "--:").collect();
    if let Some(first) = rules.first_mut() {
        *first = ":--";
    }
    if noted {
        heads.push("Notes".to_owned());
        rules.push(":--");
    }
    let mut text = format!("| {} |\n| {} |\n", heads.join(" | "), rules.join(" | "));
    for row in &table.rows {
        text.push_str(&format!("| {} |\n", cells(row, noted).join(" | ")));
    }
    text
}

fn cells(row: &TableRow, noted: bool) -> Vec<String> {
    let label = escaped(&row.label);
    let label = if row.emphasised { format!("**{label}**") } else { label };
    let figures = row.cells.iter().map(|cell| cell.as_deref().map_or_else(String::new, escaped));
    let note = noted.then(|| row.note.as_deref().map_or_else(String::new, escaped));
    std::iter::once(label).chain(figures).chain(note).collect()
}

/// Escapes Markdown characters and joins lines, so that the text is literal and stays in its cell.
fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for character in word.chars() {
            if matches!(character, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '~')
            {
                line.push('\\');
            }
            line.push(character);
        }
    }
    line
}

/// A code span. A backtick cannot be escaped inside one, so it becomes an apostrophe.
fn code(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("`{}`", words.join(" ").replace('`', "'"))
}
