//! From results files to reports for people.
//!
//! [`Results`] reads JSON lines and computes a [`Row`] for each tool and settings of a scenario. [`markdown()`] and
//! [`html()`] only lay these out; both take their tables from `table` and their units from `units`. `bars` and `lines`
//! draw the plots of the HTML page on `canvas`, each in two versions, for wide and for narrow screens; `series`
//! converts counters to rates first. [`chart()`] makes a single picture for use elsewhere.

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
