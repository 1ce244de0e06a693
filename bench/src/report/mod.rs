//! From lines of results to pages for people.
//!
//! [`Results`] reads JSON lines and works out a [`Row`] for each tool and settings of a scenario.
//! [`markdown()`] and [`html()`] only lay out what stands there: both take their tables from `table`
//! and their units from `units`. The page's plots are drawn by `bars` and `lines`, each twice, for
//! wide and for narrow screens, on `canvas`; `series` turns counters into rates before. [`chart()`] is a single
//! picture to be put elsewhere.

mod bars;
mod canvas;
mod chart;
mod html;
mod lines;
mod markdown;
mod markup;
mod overview;
mod palette;
mod plots;
mod results;
mod row;
mod series;
mod table;
mod units;

pub use chart::chart;
pub use html::html;
pub use markdown::markdown;
pub use results::{ReadError, Results, ScenarioResults, Section};
pub use row::{Failure, Row};
