//! Bar chart (SVG) for a README: the rates of several scenarios, one group per scenario, with its protocol as heading.
//!
//! Unlike the plots of the report page it is a separate file with fixed colours, because it is shown where
//! the report's style sheet does not apply.

use crate::record::{Measure, Scenario};

use super::markup::escaped;
use super::results::{Results, ScenarioResults};
use super::row::Row;
use super::units;

/// Width of the chart. All lengths are CSS pixels.
const WIDTH: f64 = 760.0;
/// Left end of all bars, and right end of a bar for the largest value (the link's limit included).
const BARS: f64 = 190.0;
const BARS_END: f64 = 680.0;
const ROW: f64 = 24.0;
const BAR: f64 = 18.0;
const GAP: f64 = 12.0;
const TOP: f64 = 74.0;

const STYLE: &str = r##"
    text { font: 13px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #24292f; }
    .heading { font-size: 16px; font-weight: 600; }
    .protocol { font-weight: 600; }
    .tool { text-anchor: end; }
    .note { font-size: 11px; fill: #57606a; }
    .haul { fill: #0969da; }
    .other { fill: #afb8c1; }
    .limit { stroke: #cf222e; stroke-width: 1; stroke-dasharray: 4 3; }
    .limit-label { font-size: 11px; fill: #cf222e; text-anchor: middle; }
  "##;

/// Draws the transfers among the results as one SVG. All must have the same link and direction.
///
/// # Errors
/// If no transfer has a rate, or the scenarios differ in link or direction.
pub fn chart(results: &Results) -> Result<String, String> {
    let groups = groups(results)?;
    let first = groups.first().ok_or("there is no transfer with a figure in these results")?;
    let link = first.scenario.link.as_ref();
    let heading = heading(first.scenario);
    let limit = link.and_then(|link| link.payload_limit).map(|limit| limit / 1e6);
    let rates = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.rate);
    let longest = rates.chain(limit).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (BARS_END - BARS) / longest;

    let mut body = String::new();
    let mut y = TOP;
    for group in &groups {
        text(&mut body, "protocol", 16.0, y + 14.0, &group.name);
        for bar in &group.bars {
            let (class, length) = (if bar.is_haul { "haul" } else { "other" }, bar.rate * scale);
            text(&mut body, "tool", BARS - 8.0, y + 14.0, &bar.label);
            line(
                &mut body,
                &format!(
                    "<rect class=\"{class}\" x=\"{BARS}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>"
                ),
            );
            text(&mut body, "value", BARS + length + 6.0, y + 14.0, &units::significant(bar.rate));
            y += ROW;
        }
        y += GAP;
    }
    let bottom = y - GAP;
    if let Some(limit) = limit {
        let x = BARS + limit * scale;
        // Drawn over the bars, to show each bar's distance from the limit.
        line(
            &mut body,
            &format!(
                "<line class=\"limit\" x1=\"{x:.1}\" y1=\"{:.0}\" x2=\"{x:.1}\" y2=\"{bottom:.0}\"/>",
                TOP - 12.0
            ),
        );
        let words = format!("{}: all that the link carries", units::significant(limit));
        text(&mut body, "limit-label", x.min(WIDTH - 90.0), TOP - 20.0, &words);
    }
    text(&mut body, "note", 16.0, bottom + 24.0, &note(&groups));

    let height = bottom + 40.0;
    let description = escaped(&description(&groups, limit));
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-labelledby=\"title desc\">\n  <title id=\"title\">{heading}</title>\n  \
         <desc id=\"desc\">{description}</desc>\n  <style>{STYLE}</style>\n  \
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\" fill=\"#ffffff\"/>\n  \
         <text class=\"heading\" x=\"16\" y=\"28\">{heading}</text>\n{body}</svg>\n",
        heading = escaped(&heading),
    ))
}

/// The bars of one scenario.
struct Group<'a> {
    name: String,
    scenario: &'a Scenario,
    bars: Vec<Bar>,
    /// The smallest number of valid runs among the bars.
    rounds: usize,
}

struct Bar {
    label: String,
    is_haul: bool,
    /// Median rate in MB/s.
    rate: f64,
}

fn groups(results: &Results) -> Result<Vec<Group<'_>>, String> {
    let scenarios = results.sections.iter().flat_map(|section| &section.scenarios);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for group in scenarios.filter_map(group) {
        // The tools of a scenario may have been measured in several benchmarks.
        match groups.iter_mut().find(|known| known.scenario.name == group.scenario.name) {
            Some(known) => {
                known.bars.extend(group.bars);
                known.bars.sort_by(|a, b| b.rate.total_cmp(&a.rate));
                known.rounds = known.rounds.min(group.rounds);
            }
            None => groups.push(group),
        }
    }
    let Some(first) = groups.first() else { return Ok(groups) };
    for group in &groups {
        let (one, other) = (first.scenario, group.scenario);
        if one.link != other.link || one.direction != other.direction {
            return Err(format!(
                "'{}' and '{}' differ in the link or the direction, and do not fit into one picture",
                one.name, other.name
            ));
        }
    }
    Ok(groups)
}

fn group(results: &ScenarioResults) -> Option<Group<'_>> {
    let scenario = &results.scenario;
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.rate.is_some()).collect();
    let bars = rows.iter().filter_map(|row| {
        let rate = row.rate?.median / 1e6;
        Some(Bar { label: label(row), is_haul: row.is_haul(), rate })
    });
    let bars: Vec<Bar> = bars.collect();
    let rounds = rows.iter().map(|row| row.correct_runs()).min()?;
    let name = scenario.protocol.to_uppercase();
    (scenario.measure == Measure::Transfer).then_some(Group { name, scenario, bars, rounds })
}

/// Tool and settings: options as typed (`aria2 -x16`), names after a comma (`rclone, best`).
fn label(row: &Row) -> String {
    match row.settings.as_str() {
        "default" => row.tool.clone(),
        settings if settings.starts_with('-') => format!("{} {settings}", row.tool),
        settings => format!("{}, {settings}", row.tool),
    }
}

fn heading(scenario: &Scenario) -> String {
    let direction = match scenario.direction.as_str() {
        "download" => "Download",
        "upload" => "Upload",
        _ => "Copy",
    };
    let Some(link) = &scenario.link else { return format!("{direction} (MB/s)") };
    let bits = if scenario.direction == "upload" { link.up_bits } else { link.down_bits };
    let rate = bits.map(|bits| format!(", {}", units::line_rate(bits))).unwrap_or_default();
    format!("{direction} at {} ms round trip{rate} (MB/s)", units::tick(link.rtt_ms))
}

fn note(groups: &[Group<'_>]) -> String {
    let data = |scenario: &Scenario| {
        let (files, each) = (scenario.files, scenario.bytes / scenario.files.max(1));
        let size = units::data(each as f64);
        if files == 1 { format!("one file of {size}") } else { format!("{files} files of {size}") }
    };
    let all: Vec<String> = groups.iter().map(|group| data(group.scenario)).collect();
    let kinds: Vec<String> = match all.first() {
        Some(first) if all.iter().all(|one| one == first) => vec![first.clone()],
        _ => {
            groups.iter().zip(&all).map(|(group, data)| format!("{}: {data}", group.name)).collect()
        }
    };
    let rounds = groups.iter().map(|group| group.rounds).min().unwrap_or_default();
    let rounds = if rounds > 1 { format!("; medians of {rounds} runs") } else { String::new() };
    format!("{}; whole process, connecting included{rounds}.", kinds.join("; "))
}

fn description(groups: &[Group<'_>], limit: Option<f64>) -> String {
    let mut words = "MB/s.".to_owned();
    for group in groups {
        let bars = group.bars.iter();
        let bars: Vec<String> =
            bars.map(|bar| format!("{} {}", bar.label, units::significant(bar.rate))).collect();
        words.push_str(&format!(" {}: {}.", group.name, bars.join(", ")));
    }
    if let Some(limit) = limit {
        words.push_str(&format!(" The link carries {} MB/s.", units::significant(limit)));
    }
    words
}

fn text(body: &mut String, class: &str, x: f64, y: f64, words: &str) {
    line(
        body,
        &format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.0}\">{}</text>", escaped(words)),
    );
}

fn line(body: &mut String, element: &str) {
    body.push_str("  ");
    body.push_str(element);
    body.push('\n');
}
