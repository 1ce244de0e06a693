//! Reads the `progress` and `error` events in the `--json` output of haul.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use crate::record::ProgressSample;

/// One event, with the fields used here.
#[derive(Debug, Deserialize)]
struct Line {
    event: String,
    seconds: Option<f64>,
    bytes: Option<u64>,
    lanes: Option<u32>,
    window_bytes: Option<u64>,
    rtt_ms: Option<f64>,
    location: Option<String>,
    operation: Option<String>,
    message: Option<String>,
}

/// The last error event in an output, as text. `None` if there is none, or if another tool wrote the output.
pub(super) fn last_error(output: impl Read) -> Option<String> {
    let last = lines(output).filter(|line| line.event == "error").last()?;
    let parts = [last.location, last.operation, last.message];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

/// The events in an output. Other lines are skipped, also those that are not UTF-8: other tools do not write events.
fn lines(output: impl Read) -> impl Iterator<Item = Line> {
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_slice(&line).ok())
}

/// The progress events in an output; empty if another tool wrote it.
pub(super) fn samples(output: impl Read) -> Vec<ProgressSample> {
    lines(output)
        .filter(|line| line.event == "progress")
        .filter_map(|line| {
            Some(ProgressSample {
                at: line.seconds?,
                bytes: line.bytes?,
                lanes: line.lanes.unwrap_or(0),
                window: line.window_bytes.unwrap_or(0),
                rtt_ms: line.rtt_ms,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_progress_events_become_samples() {
        let output = r#"{"event":"plan","files":1,"bytes":5}
not json
{"event":"progress","seconds":1.5,"bytes":3,"lanes":8,"window_bytes":4096,"rtt_ms":200.5,"phase":"copy"}
{"event":"summary","bytes":5}"#;
        let expected =
            ProgressSample { at: 1.5, bytes: 3, lanes: 8, window: 4096, rtt_ms: Some(200.5) };
        assert_eq!(samples(output.as_bytes()), [expected]);
        assert_eq!(last_error(output.as_bytes()), None);
    }

    /// Formerly, the output ended there.
    #[test]
    fn lines_that_are_not_utf_8_are_skipped() {
        let output = b"\xff\n{\"event\":\"error\",\"message\":\"full\"}\n\xfe";
        assert_eq!(last_error(&output[..]).as_deref(), Some("full"));
    }

    #[test]
    fn the_last_of_several_errors_is_returned() {
        let output = r#"{"event":"error","location":"a","operation":"read","message":"first"}
{"event":"error","location":"dav://h/x/","operation":"write","kind":"unsupported","message":"not supported"}
{"event":"summary","bytes":0}"#;
        let error = last_error(output.as_bytes());
        assert_eq!(error.as_deref(), Some("dav://h/x/: write: not supported"));
    }
}
