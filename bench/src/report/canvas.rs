//! The paper that plots are drawn on: an SVG of the plotting crate, made fit for the page.
//!
//! A plot is drawn once for wide and once for narrow screens; the page shows the one that fits, so
//! that letters have their proper size on both. Lengths are CSS pixels. The crate only knows whole
//! units, so a pixel is two of them.

use std::io;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, ShapeStyle, TextStyle};

use super::markup::escaped;
use super::palette::{self, Ink};

/// Units of the drawing a CSS pixel.
const UNITS: i32 = 2;
/// The crate divides sizes of letters by this when it writes them.
const LETTER: f64 = 1.24;

/// Where a plot is drawn.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Why it could not be.
pub(super) type PlotError = DrawingAreaErrorKind<io::Error>;

/// A plot's width and the size of its letters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    /// The page's class for it.
    class: &'static str,
    /// CSS pixels.
    width: i32,
    /// CSS pixels.
    letters: i32,
    /// Labels go above instead of beside.
    pub(super) narrow: bool,
}

/// For windows from 820 pixels, as the style sheet says; letters shrink with the plot to 10 pixels.
const WIDE: Geometry = Geometry { class: "wide", width: 1080, letters: 14, narrow: false };
/// For telephones.
const NARROW: Geometry = Geometry { class: "narrow", width: 360, letters: 12, narrow: true };

impl Geometry {
    /// Units of the drawing.
    pub(super) fn px(self, pixels: i32) -> i32 {
        pixels * UNITS
    }

    /// Units of the drawing.
    pub(super) fn width(self) -> i32 {
        self.px(self.width)
    }

    /// About as wide as this text: its letters are not known, so a little more rather than less.
    pub(super) fn text_width(self, text: &str) -> i32 {
        text.chars().count() as i32 * self.px(self.letters) * 6 / 10
    }

    /// The style of a text at its place's given side.
    pub(super) fn text_style(self, ink: Ink, side: HPos, bold: bool) -> TextStyle<'static> {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let size = f64::from(self.px(self.letters)) * LETTER;
        TextStyle {
            font: FontDesc::new(FontFamily::SansSerif, size, style),
            color: ink.colour().to_backend_color(),
            pos: Pos::new(side, VPos::Center),
        }
    }

    /// A line of so many CSS pixels.
    pub(super) fn line(self, ink: Ink, pixels: i32) -> ShapeStyle {
        ink.colour().stroke_width(self.px(pixels).unsigned_abs())
    }

    /// Writes a text with the middle of its height at `at`.
    pub(super) fn write(
        self,
        area: &Area,
        text: &str,
        at: (i32, i32),
        style: TextStyle<'static>,
    ) -> Result<(), PlotError> {
        area.draw(&Text::new(text, at, style))
    }
}

/// Draws a plot in both geometries: `draw` gets the area, and `height` says how many CSS pixels.
pub(super) fn both(
    title: &str,
    height: impl Fn(Geometry) -> i32,
    draw: impl Fn(&Area, Geometry) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let mut both = String::new();
    for geometry in [WIDE, NARROW] {
        let size = (geometry.width(), geometry.px(height(geometry)));
        let size = (size.0.unsigned_abs(), size.1.unsigned_abs());
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area, geometry)?;
        area.present()?;
        drop(area);
        both.push_str(&fit_for_page(&svg, title, geometry, size));
    }
    Ok(both)
}

/// Replaces the crate's opening tag, which fixes the size, and its colours, which fix light or dark.
fn fit_for_page(svg: &str, title: &str, geometry: Geometry, size: (u32, u32)) -> String {
    let drawing = svg.split_once('>').map_or(svg, |(_, drawing)| drawing);
    let title = escaped(title);
    format!(
        "<svg class=\"plot {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>{}",
        geometry.class,
        size.0,
        size.1,
        palette::resolved(drawing)
    )
}
