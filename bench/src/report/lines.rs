//! Line plots over time: one panel, or several below each other with the same time axis.

use plotters::chart::ChartBuilder;
use plotters::element::PathElement;
use plotters::style::TRANSPARENT;
use plotters::style::text_anchor::HPos;

use super::canvas::{self, Area, Geometry, PlotError};
use super::palette::Ink;
use super::series::Points;
use super::units;

/// A line plot.
pub(super) struct LinePlot {
    /// Text alternative for readers who cannot see the plot.
    pub(super) title: String,
    /// From top to bottom.
    pub(super) panels: Vec<Panel>,
}

/// One quantity over time.
pub(super) struct Panel {
    /// The quantity and its unit.
    pub(super) axis: String,
    /// The value of a dashed horizontal line.
    pub(super) limit: Option<f64>,
    /// Ticks only at whole numbers.
    pub(super) whole: bool,
    /// In drawing order: the last one is on top.
    pub(super) lines: Vec<Line>,
}

/// The line of one run.
pub(super) struct Line {
    /// The tool's colour.
    pub(super) ink: Ink,
    /// Drawn thicker.
    pub(super) emphasised: bool,
    /// Seconds and values.
    pub(super) points: Points,
}

impl LinePlot {
    /// Draws the plot as two SVGs, for wide and for narrow screens.
    pub(super) fn draw(&self) -> Result<String, PlotError> {
        let height = |geometry: Geometry| {
            let panel = if geometry.narrow { 190 } else { 230 };
            // Each of several panels is lower, so that all fit on one screen.
            let panel = if self.panels.len() > 1 { panel - 40 } else { panel };
            panel * self.panels.len() as i32
        };
        canvas::both(&self.title, height, |area, geometry| {
            let areas = area.split_evenly((self.panels.len().max(1), 1));
            for (panel, area) in self.panels.iter().zip(&areas) {
                panel.draw(area, geometry, self.end())?;
            }
            Ok(())
        })
    }

    /// The end of the time axis in seconds.
    fn end(&self) -> f64 {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let end = lines.flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
        if end > 0.0 { end } else { 1.0 }
    }
}

impl Panel {
    fn draw(&self, area: &Area, g: Geometry, end: f64) -> Result<(), PlotError> {
        let top = self.top();
        let mut chart = ChartBuilder::on(area)
            .margin_top(g.px(26))
            .margin_right(g.px(14))
            .y_label_area_size(g.px(if g.narrow { 36 } else { 48 }))
            .x_label_area_size(g.px(26))
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        let ticks = if self.whole { (top as usize).min(5) } else { 5 };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(if g.narrow { 5 } else { 12 })
            .y_labels(ticks + 1)
            .max_light_lines(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(g.line(Ink::Grid, 1))
            .axis_style(g.line(Ink::Grid, 1))
            .x_label_style(g.text_style(Ink::Muted, HPos::Center, false))
            .y_label_style(g.text_style(Ink::Muted, HPos::Right, false))
            .x_label_formatter(&|seconds| format!("{} s", units::tick(*seconds)))
            .y_label_formatter(&|value| units::tick(*value))
            .draw()?;
        if let Some(limit) = self.limit {
            let ends = vec![(0.0, limit), (end, limit)];
            chart.draw_series([PathElement::new(ends, g.line(Ink::Limit, 1))])?;
        }
        for line in &self.lines {
            let width = if line.emphasised { 3 } else { 2 };
            let style = g.line(line.ink, width);
            chart.draw_series([PathElement::new(line.points.clone(), style)])?;
        }
        g.write(area, &self.axis, (g.px(4), g.px(12)), g.text_style(Ink::Muted, HPos::Left, false))
    }

    /// The upper end of the value axis.
    fn top(&self) -> f64 {
        let values = self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let top = values.chain(self.limit).fold(0.0, f64::max);
        if top > 0.0 { top * 1.05 } else { 1.0 }
    }
}
