//! What haul says of itself while it runs: the `progress` events of its `--json` output.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use crate::record::ProgressSample;

/// One line of haul's output, as far as it matters here.
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

/// The last error in an output; none in that of another tool.
pub(super) fn complaint(output: impl Read) -> Option<String> {
    let last = lines(output).filter(|line| line.event == "error").last()?;
    let parts = [last.location, last.operation, last.message];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

/// What is an event of haul's; whatever is none is somebody else's output.
fn lines(output: impl Read) -> impl Iterator<Item = Line> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok())
}

/// The samples in an output; none in that of another tool.
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
    fn progress_is_read_and_everything_else_is_not() {
        let output = r#"{"event":"plan","files":1,"bytes":5}
not json
{"event":"progress","seconds":1.5,"bytes":3,"lanes":8,"window_bytes":4096,"rtt_ms":200.5,"phase":"copy"}
{"event":"summary","bytes":5}"#;
        let expected =
            ProgressSample { at: 1.5, bytes: 3, lanes: 8, window: 4096, rtt_ms: Some(200.5) };
        assert_eq!(samples(output.as_bytes()), [expected]);
        assert_eq!(complaint(output.as_bytes()), None);
    }

    #[test]
    fn the_last_error_is_what_it_complained_of() {
        let output = r#"{"event":"error","location":"a","operation":"read","message":"first"}
{"event":"error","location":"dav://h/x/","operation":"write","kind":"unsupported","message":"not supported"}
{"event":"summary","bytes":0}"#;
        let complaint = complaint(output.as_bytes());
        assert_eq!(complaint.as_deref(), Some("dav://h/x/: write: not supported"));
    }
}
