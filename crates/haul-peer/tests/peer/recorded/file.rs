//! A recording: the frames of an exchange in the order of their arrival, as text.
//!
//! ```text
//! # a comment
//! lane > 0000002f01…     a frame to the server, in hexadecimal with its header
//! lane < 0000011601…     a frame from the server
//! ```
//!
//! The word before the arrow names the connection.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use haul_peer::wire::{Deframer, Frame, Limits, decode};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Length of the field with a frame's length, in bytes.
const LENGTH: usize = 4;

/// A frame, with its connection and direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The connection.
    pub(super) lane: String,
    /// Whether it was sent to the server.
    pub(super) is_sent: bool,
    /// The frame with its header.
    pub(super) frame: Bytes,
}

impl Line {
    /// Its message; `None` for bulk data and padding.
    pub(super) fn message<M: prost::Message + Default>(&self) -> Option<M> {
        match parsed(&self.frame) {
            Frame::Message(bytes) => Some(decode(bytes).unwrap()),
            _ => None,
        }
    }
}

/// A recording that is being made by several tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<Line>>>);

impl Recorder {
    /// Adds a frame. Call this before forwarding it, so that its consequences are recorded after it.
    pub(super) fn add(&self, lane: &str, is_sent: bool, frame: &Bytes) {
        let line = Line { lane: lane.to_owned(), is_sent, frame: frame.clone() };
        self.0.lock().unwrap().push(line);
    }

    /// The frames recorded so far.
    pub(super) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }
}

/// The directory of the recordings, with a subdirectory for each version of haul that made some.
pub(super) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// Saves a recording of this version.
pub(super) fn save(name: &str, lines: &[Line]) {
    let directory = directory().join(env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(&directory).unwrap();
    let mut text = format!("# haul {}: {name}\n", env!("CARGO_PKG_VERSION"));
    for Line { lane, is_sent, frame } in lines {
        let arrow = if *is_sent { '>' } else { '<' };
        write!(text, "{lane} {arrow} ").unwrap();
        frame.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    fs::write(directory.join(format!("{name}.txt")), text).unwrap();
}

/// The recordings of this name, each with the version of haul that made it.
pub(super) fn load(name: &str) -> Vec<(String, Vec<Line>)> {
    let Ok(versions) = fs::read_dir(directory()) else { return Vec::new() };
    let versions = versions.map(|version| version.unwrap().path());
    let mut found: Vec<(String, Vec<Line>)> = versions
        .filter_map(|version| {
            let text = fs::read_to_string(version.join(format!("{name}.txt"))).ok()?;
            let version = version.file_name()?.to_str()?.to_owned();
            Some((version, text.lines().filter_map(line).collect()))
        })
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn line(text: &str) -> Option<Line> {
    if text.starts_with('#') || text.is_empty() {
        return None;
    }
    let mut words = text.split(' ');
    let (lane, arrow, hex) = (words.next()?, words.next()?, words.next()?);
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let frame = (0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>();
    Some(Line { lane: lane.to_owned(), is_sent: arrow == ">", frame: frame.into() })
}

/// Receives a frame with its header; `None` at the end of the stream.
pub(super) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let mut length = [0; LENGTH];
    stream.read_exact(&mut length).await.ok()?;
    let mut frame = length.to_vec();
    frame.resize(LENGTH + u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut frame[LENGTH..]).await.ok()?;
    Some(frame.into())
}

/// Decodes a frame.
pub(super) fn parsed(frame: &Bytes) -> Frame {
    let mut deframer = Deframer::new(Limits::FULL);
    deframer.push(frame.clone());
    deframer.next_frame().unwrap().unwrap()
}

/// A frame in which `new` replaces `old`, which occurs once and has the same length. All other bytes stay as recorded.
pub(super) fn replaced(frame: &Bytes, old: &[u8], new: &[u8]) -> Bytes {
    assert_eq!(old.len(), new.len());
    let offsets: Vec<usize> = frame
        .windows(old.len())
        .enumerate()
        .filter(|(_, at)| *at == old)
        .map(|(at, _)| at)
        .collect();
    let [offset] = offsets[..] else { panic!("{} occurrences instead of one", offsets.len()) };
    let mut frame = frame.to_vec();
    frame[offset..offset + new.len()].copy_from_slice(new);
    frame.into()
}
