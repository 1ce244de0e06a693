//! Bars: a median for each tool, with a whisker from the smallest to the largest value of its rounds.
//!
//! Wide plots have the tool to the left and the value to the right of a bar, narrow ones both
//! above it, so that neither is ever cut off or written over a bar.

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, TRANSPARENT};

use crate::stats::Summary;

use super::canvas::{self, Area, Geometry, PlotError};
use super::palette::Ink;
use super::units;

/// A bar plot.
pub(super) struct BarPlot {
    /// The text alternative to the plot, for screen readers.
    pub(super) title: String,
    /// The quantity and its unit.
    pub(super) axis: String,
    /// A dashed line: its value on the axis, and its label.
    pub(super) limit: Option<(f64, String)>,
    /// From top to bottom.
    pub(super) bars: Vec<Bar>,
}

/// One row's bar.
pub(super) struct Bar {
    /// The tool and its settings.
    pub(super) label: String,
    /// Written bold.
    pub(super) emphasised: bool,
    /// Pale with an outline, to distinguish other settings from the default ones.
    pub(super) hollow: bool,
    /// The tool's colour.
    pub(super) ink: Ink,
    /// Median, smallest and largest value in the unit of the axis; `None` draws no bar.
    pub(super) figure: Option<Summary>,
    /// The median with its unit, and any failures; or why there is no median.
    pub(super) words: String,
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl BarPlot {
    /// The SVGs for wide and for narrow screens.
    pub(super) fn draw(&self) -> Result<String, PlotError> {
        canvas::both(&self.title, |geometry| self.height(geometry), |area, g| self.draw_on(area, g))
    }

    /// The height in CSS pixels.
    fn height(&self, geometry: Geometry) -> i32 {
        let row = if geometry.narrow { 40 } else { 30 };
        let head = if self.limit.is_some() { 26 } else { 8 };
        row * self.bars.len() as i32 + head + 48
    }

    fn draw_on(&self, area: &Area, g: Geometry) -> Result<(), PlotError> {
        let widest = |texts: &mut dyn Iterator<Item = &String>| {
            texts.map(|text| g.text_width(text)).max().unwrap_or(0) + g.px(12)
        };
        let (left, right) = if g.narrow {
            (g.px(8), g.px(8))
        } else {
            (
                widest(&mut self.bars.iter().map(|bar| &bar.label)),
                widest(&mut self.bars.iter().map(|bar| &bar.words)),
            )
        };
        let head = if self.limit.is_some() { 24 } else { 6 };
        let mut chart = ChartBuilder::on(area)
            .margin_top(g.px(head))
            .margin_left(left)
            .margin_right(right)
            .x_label_area_size(g.px(48))
            .build_cartesian_2d(0.0..self.end(), self.bars.len() as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(if g.narrow { 5 } else { 10 })
            .max_light_lines(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(g.line(Ink::Grid, 1))
            .axis_style(g.line(Ink::Grid, 1))
            .x_label_style(g.text_style(Ink::Muted, HPos::Center, false))
            .axis_desc_style(g.text_style(Ink::Muted, HPos::Center, false))
            .x_label_formatter(&|value| units::tick(*value))
            .x_desc(self.axis.as_str())
            .draw()?;
        for (row, bar) in self.bars.iter().enumerate() {
            bar.draw(&mut chart, g, row as f64)?;
        }
        self.draw_limit(area, &mut chart, g)?;
        // Text is drawn last: in narrow plots the limit's line may cross it.
        for (row, bar) in self.bars.iter().enumerate() {
            bar.write(area, &chart, g, row as f64)?;
        }
        Ok(())
    }

    fn draw_limit(&self, area: &Area, chart: &mut Chart, g: Geometry) -> Result<(), PlotError> {
        let Some((limit, words)) = &self.limit else {
            return Ok(());
        };
        let ends = vec![(*limit, 0.0), (*limit, self.bars.len() as f64)];
        chart.draw_series([PathElement::new(ends, g.line(Ink::Limit, 1))])?;
        let (x, y) = chart.backend_coord(&(*limit, 0.0));
        // The label ends at the line, or begins there if it would extend beyond the left edge of the plot.
        let fits = x > g.text_width(words);
        let side = if fits { HPos::Right } else { HPos::Left };
        let style = g.text_style(Ink::Muted, side, false);
        g.write(area, words, (x, y - g.px(12)), style)
    }

    /// The end of the axis: 2 % beyond the largest value.
    fn end(&self) -> f64 {
        let values = self.bars.iter().filter_map(|bar| bar.figure.map(|figure| figure.max));
        let end = values.chain(self.limit.iter().map(|limit| limit.0)).fold(0.0, f64::max);
        if end > 0.0 { end * 1.02 } else { 1.0 }
    }
}

impl Bar {
    fn draw(&self, chart: &mut Chart, g: Geometry, row: f64) -> Result<(), PlotError> {
        let Some(figure) = self.figure else {
            return Ok(());
        };
        let (above, below) = extent(g);
        let corners = [(0.0, row + above), (figure.median, row + below)];
        if self.hollow {
            chart.draw_series([Rectangle::new(corners, self.ink.colour().mix(0.3).filled())])?;
            chart.draw_series([Rectangle::new(corners, g.line(self.ink, 1))])?;
        } else {
            chart.draw_series([Rectangle::new(corners, self.ink.colour().filled())])?;
        }
        if figure.min == figure.max {
            return Ok(());
        }
        let middle = row + f64::midpoint(above, below);
        let cap = 0.12;
        let strokes = [
            [(figure.min, middle), (figure.max, middle)],
            [(figure.min, middle - cap), (figure.min, middle + cap)],
            [(figure.max, middle - cap), (figure.max, middle + cap)],
        ];
        // With an outline in the colour of the page: a dark whisker would be invisible on a dark bar.
        for (ink, width) in [(Ink::Page, 3), (Ink::Text, 1)] {
            let stroke = |ends: [_; 2]| PathElement::new(ends.to_vec(), g.line(ink, width));
            chart.draw_series(strokes.map(stroke))?;
        }
        Ok(())
    }

    fn write(&self, area: &Area, chart: &Chart, g: Geometry, row: f64) -> Result<(), PlotError> {
        let ink = if self.figure.is_some() { Ink::Text } else { Ink::Muted };
        let style = |side| g.text_style(ink, side, self.emphasised);
        let (above, below) = extent(g);
        let middle = if g.narrow { above / 2.0 } else { f64::midpoint(above, below) };
        let (zero, y) = chart.backend_coord(&(0.0, row + middle));
        if g.narrow {
            g.write(area, &self.label, (zero, y), style(HPos::Left))?;
        } else {
            g.write(area, &self.label, (zero - g.px(8), y), style(HPos::Right))?;
        }
        g.write(area, &self.words, (g.width() - g.px(4), y), style(HPos::Right))
    }
}

/// The vertical extent of a bar as shares of the height of its row. In narrow plots the label is above the bar.
fn extent(g: Geometry) -> (f64, f64) {
    if g.narrow { (0.52, 0.9) } else { (0.18, 0.82) }
}
