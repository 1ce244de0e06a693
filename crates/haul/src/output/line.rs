//! A line of progress that fits the width of the terminal: the least important parts are dropped first.

use std::time::Duration;

use haul_engine::{Phase, Progress};

use super::color::Tint;
use super::human::{latency, plural};
use crate::units::{bytes, duration, rate};

/// Characters of the bar, without its brackets.
const BAR: usize = 16;

/// Separates two parts.
const GAP: &str = "  ";

/// A part of a line. Parts with a higher rank are dropped first.
struct Part {
    rank: u8,
    text: String,
    tint: Option<Tint>,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Style {
    /// With a bar.
    pub(crate) bar: bool,
    /// With colours.
    pub(crate) color: bool,
}

/// The progress of a transfer, in at most `width` characters. `verbose` adds lanes, window and latency.
pub(crate) fn progress(progress: &Progress, verbose: bool, style: Style, width: usize) -> String {
    let mut parts = Vec::new();
    let mut add = |rank, text: String| parts.push(Part { rank, text, tint: None });
    let known = progress.phase != Phase::Planning;
    let total = bytes(progress.total_bytes);
    if known {
        let share = share(progress);
        if style.bar {
            add(5, drawn(share));
        }
        add(0, format!("{:>3}%", (share * 100.0) as u8));
        add(1, format!("{} of {total}", bytes(progress.bytes)));
    } else {
        // `143+ MiB`: at least that much.
        let total = total.replacen(' ', "+ ", 1);
        add(0, format!("{} of {total}, counting", bytes(progress.bytes)));
    }
    // At the very beginning the rate is not known.
    if progress.bytes_per_second > 0 {
        add(2, rate(progress.bytes_per_second));
        let left = progress.total_bytes.saturating_sub(progress.bytes);
        let left = Duration::try_from_secs_f64(left as f64 / progress.bytes_per_second as f64);
        if let (true, Ok(left)) = (known, left) {
            add(1, format!("{} left", duration(left)));
        }
    }
    let more = if known { "" } else { "+" };
    add(3, format!("{}/{}{more} files", progress.files, progress.total_files));
    if verbose && progress.link.lanes > 0 {
        add(4, plural(progress.link.lanes as u64, "lane"));
        add(6, format!("window {}", bytes(progress.link.window_bytes)));
        if let Some(rtt) = progress.link.rtt {
            add(7, latency(rtt));
        }
    }
    let percent = parts.iter_mut().find(|part| part.text.ends_with('%'));
    if let Some(percent) = percent.filter(|_| style.color) {
        percent.tint = Some(Tint::Done);
    }
    fitted(parts, width)
}

/// The share that is done, from 0 to 1.
fn share(progress: &Progress) -> f64 {
    let (done, all) = match progress.total_bytes {
        0 => (progress.files, progress.total_files),
        all => (progress.bytes, all),
    };
    if all == 0 { 0.0 } else { (done as f64 / all as f64).clamp(0.0, 1.0) }
}

fn drawn(share: f64) -> String {
    let done = (share * BAR as f64) as usize;
    let head = if done < BAR { ">" } else { "" };
    format!("[{:<BAR$}]", format!("{}{head}", "=".repeat(done)))
}

/// The parts that fit into `width` characters; if not even one fits, its beginning.
fn fitted(mut parts: Vec<Part>, width: usize) -> String {
    loop {
        let texts: Vec<_> = parts.iter().map(|part| part.text.as_str()).collect();
        let line = texts.join(GAP);
        if line.chars().count() <= width {
            let painted = parts.iter().map(|part| match part.tint {
                Some(tint) => tint.paint(&part.text),
                None => part.text.clone(),
            });
            return painted.collect::<Vec<_>>().join(GAP);
        }
        let ranks = parts.iter().enumerate().map(|(at, part)| (part.rank, at));
        match ranks.max() {
            Some((_, at)) if parts.len() > 1 => drop(parts.remove(at)),
            _ => return line.chars().take(width).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_engine::LinkSummary;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(phase: Phase) -> Progress {
        Progress {
            phase,
            elapsed: Duration::from_secs(9),
            files: 12,
            total_files: 40,
            bytes: 104 * MIB,
            total_bytes: 143 * MIB,
            moved_bytes: 104 * MIB,
            bytes_per_second: 12 * MIB,
            link: LinkSummary {
                lanes: 8,
                window_bytes: 24 * MIB,
                rtt: Some(Duration::from_millis(200)),
                ..LinkSummary::default()
            },
        }
    }

    fn shown(phase: Phase, verbose: bool, width: usize) -> String {
        let style = Style { bar: true, color: false };
        let line = progress(&at(phase), verbose, style, width);
        assert!(line.chars().count() <= width, "{line}");
        line
    }

    #[test]
    fn a_narrow_line_drops_the_least_important_parts() {
        let moving = |width| shown(Phase::Moving, true, width);
        assert_eq!(
            moving(200),
            "[===========>    ]   72%  104 MiB of 143 MiB  12.0 MiB/s  3.2 s left  12/40 files  8 lanes  \
             window 24.0 MiB  latency 200.0 ms"
        );
        assert_eq!(
            moving(80),
            " 72%  104 MiB of 143 MiB  12.0 MiB/s  3.2 s left  12/40 files  8 lanes"
        );
        assert_eq!(moving(40), " 72%  104 MiB of 143 MiB  3.2 s left");
        assert_eq!(moving(4), " 72%");
    }

    #[test]
    fn before_totals_are_complete_no_percentage_and_no_time_left_are_shown() {
        let counting = |width| shown(Phase::Planning, false, width);
        assert_eq!(counting(80), "104 MiB of 143+ MiB, counting  12.0 MiB/s  12/40+ files");
        assert_eq!(counting(40), "104 MiB of 143+ MiB, counting");
    }

    #[test]
    fn the_share_of_empty_files_is_by_number() {
        let empty = Progress { bytes: 0, total_bytes: 0, ..at(Phase::Moving) };
        assert!(progress(&empty, false, Style::default(), 80).starts_with(" 30%  "));
        let coloured = Style { bar: false, color: true };
        assert!(progress(&empty, false, coloured, 80).starts_with("\x1b[1;32m 30%\x1b[0m  "));
    }
}
