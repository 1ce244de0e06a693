//! The drawing area of plots: an SVG from the plotters crate, adapted for embedding in the page.
//!
//! Each plot is drawn twice, for wide and for narrow screens, and the page shows the one that fits, so that
//! text has its proper size on both. Lengths are CSS pixels. plotters has integer coordinates, so one pixel
//! is two drawing units.

use std::io;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, ShapeStyle, TextStyle};

use super::markup::escaped;
use super::palette::{self, Ink};

/// Drawing units per CSS pixel.
const UNITS: i32 = 2;
/// plotters divides font sizes by this when it writes them.
const FONT_SCALE: f64 = 1.24;

/// The area of a plot.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// An error of drawing a plot.
pub(super) type PlotError = DrawingAreaErrorKind<io::Error>;

/// Width and font size of a plot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    /// CSS class of the plot.
    class: &'static str,
    /// CSS pixels.
    width: i32,
    /// Font size in CSS pixels.
    font_size: i32,
    /// Whether labels are above the bars instead of beside them.
    pub(super) narrow: bool,
}

/// For windows of at least 820 pixels (see the style sheet); the text shrinks with the plot, to 10 pixels.
const WIDE: Geometry = Geometry { class: "wide", width: 1080, font_size: 14, narrow: false };
/// For phones.
const NARROW: Geometry = Geometry { class: "narrow", width: 360, font_size: 12, narrow: true };

impl Geometry {
    /// CSS pixels in drawing units.
    pub(super) fn px(self, pixels: i32) -> i32 {
        pixels * UNITS
    }

    /// The width in drawing units.
    pub(super) fn width(self) -> i32 {
        self.px(self.width)
    }

    /// The width of a text in drawing units, estimated generously because the font is not known.
    pub(super) fn text_width(self, text: &str) -> i32 {
        text.chars().count() as i32 * self.px(self.font_size) * 6 / 10
    }

    /// A text style; `side` is the end of the text that is anchored at its position.
    pub(super) fn text_style(self, ink: Ink, side: HPos, bold: bool) -> TextStyle<'static> {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let size = f64::from(self.px(self.font_size)) * FONT_SCALE;
        TextStyle {
            font: FontDesc::new(FontFamily::SansSerif, size, style),
            color: ink.colour().to_backend_color(),
            pos: Pos::new(side, VPos::Center),
        }
    }

    /// A line style with a width of `pixels` CSS pixels.
    pub(super) fn line(self, ink: Ink, pixels: i32) -> ShapeStyle {
        ink.colour().stroke_width(self.px(pixels).unsigned_abs())
    }

    /// Writes a text, vertically centred at `at`.
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

/// Draws a plot in both geometries. `height` returns its height in CSS pixels.
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

/// Replaces the opening tag of plotters, which fixes the size, and its colours, which suit only a light or
/// only a dark page.
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
