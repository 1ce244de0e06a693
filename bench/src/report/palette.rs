//! Colours: which tool has which, and how a fixed colour of the plotting crate becomes one that
//! follows the reader's light or dark setting.
//!
//! The crate writes colours as numbers into the SVG. Every [`Ink`] is drawn in a placeholder colour
//! that no plot uses otherwise, and [`resolved`] replaces those by CSS variables, which the page
//! defines once for light and once for dark.

use std::collections::BTreeSet;

use plotters::style::RGBColor;

use super::results::Results;
use super::row::Row;

/// Colours for tools besides haul. With more tools, several share a colour, on different plots if
/// possible.
const PEERS: u8 = 9;

/// Red and green of the placeholder colours; blue is the ink's number.
const MARK: (u8, u8) = (1, 2);

/// The colour of a drawn element, and whether its lines are dashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// The page's background, for the outline of whiskers.
    Page,
    /// Labels.
    Text,
    /// Ticks and remarks.
    Muted,
    /// Lines behind the data.
    Grid,
    /// The payload limit of the link.
    Limit,
    /// The colour of a tool: 0 is haul's.
    Tool(u8),
    /// The same, for a dashed line.
    DashedTool(u8),
}

impl Ink {
    const ALL: [Self; 5] = [Self::Page, Self::Text, Self::Muted, Self::Grid, Self::Limit];

    /// The placeholder colour, until [`resolved`].
    pub(super) fn colour(self) -> RGBColor {
        RGBColor(MARK.0, MARK.1, self.number())
    }

    /// Lengths of dashes and gaps in units of the drawing; `None` for solid lines.
    pub(super) fn dashes(self) -> Option<&'static str> {
        match self {
            Self::Limit => Some("12 8"),
            Self::DashedTool(_) => Some("18 6"),
            Self::Page | Self::Text | Self::Muted | Self::Grid | Self::Tool(_) => None,
        }
    }

    /// The colour in CSS.
    pub(super) fn css(self) -> String {
        match self {
            Self::Page => "var(--page)".to_owned(),
            Self::Text => "var(--text)".to_owned(),
            Self::Muted => "var(--muted)".to_owned(),
            Self::Grid => "var(--grid)".to_owned(),
            Self::Limit => "var(--limit)".to_owned(),
            Self::Tool(slot) | Self::DashedTool(slot) => format!("var(--tool-{slot})"),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Page => 239,
            Self::Text => 240,
            Self::Muted => 241,
            Self::Grid => 242,
            Self::Limit => 243,
            Self::Tool(slot) => slot,
            Self::DashedTool(slot) => 100 + slot,
        }
    }
}

/// The SVG with the inks' CSS colours, and with dashes, which the crate would draw as many short lines.
/// Only whole attribute values are touched: text is escaped and has no bare quotes.
pub(super) fn resolved(svg: &str) -> String {
    let tools = (0..=PEERS).flat_map(|slot| [Ink::Tool(slot), Ink::DashedTool(slot)]);
    Ink::ALL.into_iter().chain(tools).fold(svg.to_owned(), |svg, ink| {
        let RGBColor(red, green, blue) = ink.colour();
        let drawn = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
        let dashes = ink.dashes().map(|dashes| format!(" stroke-dasharray=\"{dashes}\""));
        svg.replace(&drawn, &format!("\"{}\"{}", ink.css(), dashes.unwrap_or_default()))
    })
}

/// Which tool has which colour, the same on all plots of a page.
#[derive(Debug)]
pub(super) struct Palette {
    /// All tools but haul, by name, with their slots.
    peers: Vec<(String, u8)>,
}

impl Palette {
    pub(super) fn of(results: &Results) -> Self {
        let names: BTreeSet<&str> =
            results.rows().filter(|row| !row.is_haul()).map(|row| row.tool.as_str()).collect();
        let mut peers: Vec<(String, u8)> = Vec::new();
        for name in names {
            let neighbours = on_plots_with(results, name);
            // The slot with the fewest tools that share a plot with this one; of several such slots, the
            // one with the fewest tools altogether.
            let taken = |slot: &u8| {
                let same = peers.iter().filter(|(_, other)| other == slot);
                let beside = same.clone().filter(|(peer, _)| neighbours.contains(peer.as_str()));
                (beside.count(), same.count())
            };
            let slot = (1..=PEERS).min_by_key(taken).unwrap_or(PEERS);
            peers.push((name.to_owned(), slot));
        }
        Self { peers }
    }

    /// All tools, haul first.
    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        std::iter::once("haul").chain(self.peers.iter().map(|(name, _)| name.as_str()))
    }

    /// A tool's ink; haul's is its own.
    pub(super) fn ink(&self, tool: &str) -> Ink {
        Ink::Tool(self.slot(tool))
    }

    /// A tool's ink for lines: dashed for other than the default settings.
    pub(super) fn line_ink(&self, row: &Row) -> Ink {
        let slot = self.slot(&row.tool);
        if row.is_default() { Ink::Tool(slot) } else { Ink::DashedTool(slot) }
    }

    fn slot(&self, tool: &str) -> u8 {
        self.peers.iter().find(|(peer, _)| peer == tool).map_or(0, |(_, slot)| *slot)
    }
}

/// The tools that share a plot with `tool`, so that their colours should differ.
fn on_plots_with<'a>(results: &'a Results, tool: &str) -> BTreeSet<&'a str> {
    let scenarios = results.sections.iter().flat_map(|section| &section.scenarios);
    let measured = scenarios.map(|scenario| {
        let rows = scenario.rows.iter().filter(|row| row.correct_runs() > 0);
        rows.map(|row| row.tool.as_str()).collect::<BTreeSet<&str>>()
    });
    measured.filter(|tools| tools.contains(tool)).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_become_css_variables_and_dashes() {
        let drawn = "stroke=\"#0102F3\" fill=\"#010200\" stroke=\"#010264\" fill=\"#010203\"";
        let resolved = resolved(drawn);
        assert!(!resolved.contains('#'), "{resolved}");
        assert!(resolved.starts_with("stroke=\"var(--limit)\" stroke-dasharray=\"12 8\""));
        assert!(resolved.contains("stroke=\"var(--tool-0)\" stroke-dasharray"), "{resolved}");
        assert!(resolved.ends_with("fill=\"var(--tool-3)\""), "{resolved}");
    }
}
