//! The plots of a scenario: bars of what it measures; for transfers over a link, the rate on the wire over time; for
//! files read through a mount, the rate at which the program received them over time; and if haul reported progress,
//! its lanes, window and RTT.
//!
//! The line of a tool is its median run, with rates in short bins: a mean of several runs would hide stalls.

use crate::record::{ByteSample, Measure, ProgressSample, Run};
use crate::stats::Summary;

use super::bars::{Bar, BarPlot};
use super::canvas::PlotError;
use super::lines::{Line, LinePlot, Panel};
use super::markup::escaped;
use super::palette::{Ink, Palette};
use super::results::ScenarioResults;
use super::row::Row;
use super::series::{self, Points};
use super::units;

/// All figures of a scenario as HTML.
pub(super) fn figures(results: &ScenarioResults, palette: &Palette) -> String {
    let mut figures = bar_figures(results, palette);
    figures.extend(wire_figure(results, palette));
    figures.extend(read_figure(results, palette));
    figures.extend(progress_figures(results, palette));
    figures.concat()
}

fn bar_figures(results: &ScenarioResults, palette: &Palette) -> Vec<String> {
    let rates = |axis: &str| {
        let megabytes = |rate: Summary| Summary {
            median: rate.median / 1e6,
            min: rate.min / 1e6,
            max: rate.max / 1e6,
            count: rate.count,
        };
        bars(results, palette, axis, &|row| {
            row.rate.map(|rate| (megabytes(rate), units::rate(rate.median)))
        })
    };
    let latencies = |axis: &str| {
        let milliseconds = |latency: Summary| Summary {
            median: latency.median * 1e3,
            min: latency.min * 1e3,
            max: latency.max * 1e3,
            count: latency.count,
        };
        bars(results, palette, axis, &|row| {
            row.latency.map(|latency| {
                (milliseconds(latency), format!("{} ms", units::milliseconds(latency.median)))
            })
        })
    };
    let plots = match results.scenario.measure {
        Measure::Transfer => vec![rates("MB/s, more is better")],
        Measure::Connect => vec![latencies("ms to connect, less is better")],
        Measure::FirstByte => vec![latencies("ms to the first byte, less is better")],
        Measure::Mount => vec![
            latencies("ms to the first byte, less is better"),
            rates("MB/s when reading, more is better"),
        ],
        Measure::MountRandom
        | Measure::MountFind
        | Measure::MountList
        | Measure::MountStatus
        | Measure::MountWrite => part_figures(results, palette),
    };
    plots.into_iter().flatten().collect()
}

/// Bars of each part that is timed in a mount.
fn part_figures(results: &ScenarioResults, palette: &Palette) -> Vec<Option<String>> {
    let figure = |name: String| {
        bars(results, palette, &format!("{name}: seconds, less is better"), &|row| {
            let part = row.part(&name)?;
            Some((part, format!("{} s", units::significant(part.median))))
        })
    };
    results.part_names().into_iter().map(figure).collect()
}

fn bars(
    results: &ScenarioResults,
    palette: &Palette,
    axis: &str,
    figure: &dyn Fn(&Row) -> Option<(Summary, String)>,
) -> Option<String> {
    let bars: Vec<Bar> = results.rows.iter().map(|row| bar(row, palette, figure(row))).collect();
    if bars.iter().all(|bar| bar.figure.is_none()) {
        return None;
    }
    let title = format!("{}: {axis}", results.scenario.title);
    let limit = payload_limit(results).map(|limit| (limit / 1e6, limit_words(limit)));
    let caption = "Medians; the whiskers reach from the smallest to the largest counted run.";
    let plot = BarPlot { title, axis: axis.to_owned(), limit, bars };
    Some(html_figure(plot.draw(), "", caption))
}

fn bar(row: &Row, palette: &Palette, figure: Option<(Summary, String)>) -> Bar {
    let (figure, words) = match figure {
        Some((figure, words)) if row.failures.is_empty() => (Some(figure), words),
        Some((figure, words)) => (Some(figure), format!("{words}, {}", row.status_text())),
        None => (None, row.status_text()),
    };
    Bar {
        label: row.label(),
        emphasised: row.is_haul(),
        hollow: !row.is_default(),
        ink: palette.ink(&row.tool),
        figure,
        words,
    }
}

fn wire_figure(results: &ScenarioResults, palette: &Palette) -> Option<String> {
    if results.scenario.measure != Measure::Transfer || results.scenario.link.is_none() {
        return None;
    }
    let limit = payload_limit(results);
    let above =
        if limit.is_some() { "; a full link is a little above the payload limit" } else { "" };
    rate_figure(results, palette, "MB/s on the wire", limit, &|run| &run.wire, &|bin| {
        format!(
            "On the wire towards the destination, headers included, in the median run of each tool, \
             in bins of {bin} s{above}."
        )
    })
}

/// The rate at which a program reads a file in a mount.
fn read_figure(results: &ScenarioResults, palette: &Palette) -> Option<String> {
    let link = results.scenario.link.as_ref();
    let limit = link.and_then(|link| link.payload_limit);
    rate_figure(results, palette, "MB/s read", limit, &|run| &run.read, &|bin| {
        format!(
            "What the program received since it opened the file, in the median run of each tool, in \
             bins of {bin} s."
        )
    })
}

/// A line for each tool: the rate of one of its counters over time. `caption` gets the width of the bins.
fn rate_figure(
    results: &ScenarioResults,
    palette: &Palette,
    axis: &str,
    limit: Option<f64>,
    counter: &dyn Fn(&Run) -> &[ByteSample],
    caption: &dyn Fn(&str) -> String,
) -> Option<String> {
    let runs = results.rows.iter().filter_map(|row| row.typical.as_deref());
    let longest = runs.filter_map(|run| Some(counter(run).last()?.at)).fold(0.0, f64::max);
    let bin = series::bin_width(longest);
    let points = |run: &Run| scaled(series::rate(counter(run), bin), 1e-6);
    let (lines, mut keys) = lines(results, palette, &points)?;
    keys.extend(limit.map(|limit| key(Ink::Limit, 2, &limit_words(limit))));
    let plot = LinePlot {
        title: format!("{}: {axis} over time", results.scenario.title),
        panels: vec![Panel {
            axis: axis.to_owned(),
            limit: limit.map(|limit| limit / 1e6),
            whole: false,
            lines,
        }],
    };
    Some(html_figure(plot.draw(), &keys.concat(), &caption(&units::tick(bin))))
}

fn progress_figures(results: &ScenarioResults, palette: &Palette) -> Vec<String> {
    let panel = |axis: &str, whole, points: &dyn Fn(&[ProgressSample]) -> Points| {
        let (lines, keys) = lines(results, palette, &|run| points(&run.progress))?;
        // A single line needs no legend: the caption names it.
        let keys = if keys.len() > 1 { keys.concat() } else { String::new() };
        Some((Panel { axis: axis.to_owned(), limit: None, whole, lines }, keys))
    };
    let lanes = panel("lanes", true, &series::lanes);
    let window =
        panel("window, MiB", false, &|samples| scaled(series::window(samples), 1.0 / units::MIB));
    let rtt = panel("RTT, ms", false, &series::rtt);
    // Backends that measure no RTT have a window only.
    let (what, caption) = match (&window, &rtt) {
        (_, None) => ("haul's window", "Bytes that haul allowed in flight, in its median run."),
        (None, _) => ("haul's RTT", "The RTT that haul measured, in its median run."),
        _ => (
            "haul's window and RTT",
            "Bytes that haul allowed in flight, and the RTT that it measured, in its median run.",
        ),
    };
    let figure = |panels: Vec<(Panel, String)>, what: &str, caption: &str| {
        let keys = panels.first().map(|(_, keys)| keys.clone())?;
        let panels = panels.into_iter().map(|(panel, _)| panel).collect();
        let title = format!("{}: {what} over time", results.scenario.title);
        Some(html_figure(LinePlot { title, panels }.draw(), &keys, caption))
    };
    let connections = figure(
        lanes.into_iter().collect(),
        "haul's lanes",
        "Connections that haul used, in its median run.",
    );
    let window = figure(window.into_iter().chain(rtt).collect(), what, caption);
    connections.into_iter().chain(window).collect()
}

/// A line and a legend entry for each row that has two points or more; `None` if no row has.
fn lines(
    results: &ScenarioResults,
    palette: &Palette,
    points: &dyn Fn(&Run) -> Points,
) -> Option<(Vec<Line>, Vec<String>)> {
    let mut lines = Vec::new();
    let mut keys = Vec::new();
    for row in &results.rows {
        let points = row.typical.as_deref().map(points).unwrap_or_default();
        if points.len() < 2 {
            continue;
        }
        let ink = palette.line_ink(row);
        keys.push(key(ink, if row.is_haul() { 4 } else { 2 }, &row.label()));
        lines.push(Line { ink, emphasised: row.is_haul(), points });
    }
    // Lines of haul are drawn on top.
    lines.sort_by_key(|line| line.emphasised);
    (!lines.is_empty()).then_some((lines, keys))
}

fn payload_limit(results: &ScenarioResults) -> Option<f64> {
    let limit = results.scenario.link.as_ref()?.payload_limit?;
    (results.scenario.measure == Measure::Transfer).then_some(limit)
}

fn limit_words(limit: f64) -> String {
    format!("payload limit {}", units::rate(limit))
}

fn scaled(points: Points, by: f64) -> Points {
    points.into_iter().map(|(at, value)| (at, value * by)).collect()
}

/// A legend entry. The legend is HTML and not part of the plot, so that it wraps like text.
fn key(ink: Ink, width: u32, label: &str) -> String {
    let dashes = ink.dashes().map(|_| " stroke-dasharray=\"6 4\"").unwrap_or_default();
    format!(
        "<li><svg class=\"key\" viewBox=\"0 0 28 8\" aria-hidden=\"true\"><line x1=\"0\" y1=\"4\" \
         x2=\"28\" y2=\"4\" stroke=\"{}\" stroke-width=\"{width}\"{dashes}/></svg>{}</li>",
        ink.css(),
        escaped(label)
    )
}

fn html_figure(plot: Result<String, PlotError>, keys: &str, caption: &str) -> String {
    // A report without a plot is better than none. The error is shown in place of the plot.
    let plot = plot.unwrap_or_else(|error| {
        format!(
            "<p class=\"flag\">This plot could not be drawn: {}.</p>",
            escaped(&error.to_string())
        )
    });
    let legend =
        if keys.is_empty() { String::new() } else { format!("<ul class=\"legend\">{keys}</ul>") };
    format!("<figure>\n{legend}\n{plot}<figcaption>{caption}</figcaption>\n</figure>\n")
}
