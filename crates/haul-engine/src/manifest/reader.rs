//! Reads a manifest from any storage, line by line and in bounded memory.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use haul_storage::{
    Block, BlockStream, DigestKind, Error, ErrorKind, Location, Range, ReadAt, RelPath, Result,
    Storage, UNKNOWN_SIZE,
};

use super::frame::Frame;
use super::line::{LineError, Listed, parse_line};

/// The longest line accepted, in bytes. A path has at most 4 096 bytes on Linux and 32 767 characters on Windows;
/// escaping may double that.
const LINE_MAX: usize = 256 << 10;

/// Some Windows editors begin every text with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of a manifest that is neither empty nor a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedLine {
    /// The line number, counted from 1.
    pub number: u64,
    /// The file and digest that the line lists, or why it is malformed.
    pub listed: Result<Listed, LineError>,
}

/// Reads a manifest from a storage.
pub struct ManifestReader {
    file: Arc<dyn ReadAt>,
    blocks: BlockStream,
    lines: Lines,
    frame: Frame,
    kind: DigestKind,
    location: Location,
    path: RelPath,
    received: u64,
    /// The stream has returned its last block and must not be polled again.
    exhausted: bool,
    /// All blocks are in `lines`, and the file has not changed while it was read.
    ended: bool,
}

impl ManifestReader {
    /// Opens a manifest. Digests without a tag are of `kind`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn open(storage: &dyn Storage, path: &RelPath, kind: DigestKind) -> Result<Self> {
        let file = storage.open(path).await?;
        let blocks = file.read_at(Range::new(0, file.identity().size));
        let location = storage.location().clone();
        Ok(Self {
            file,
            blocks,
            lines: Lines::default(),
            frame: Frame::default(),
            kind,
            location,
            path: path.clone(),
            received: 0,
            exhausted: false,
            ended: false,
        })
    }

    /// The next line that is neither empty nor a comment; `None` after the last. A malformed line is an `Err` in
    /// [`NumberedLine::listed`], and reading continues after it. Cancel safe.
    ///
    /// # Errors
    /// If the manifest cannot be read any further, or has changed while it was read.
    pub async fn next(&mut self) -> Result<Option<NumberedLine>> {
        loop {
            while let Some((number, line)) = self.lines.next(self.ended) {
                let frame = &mut self.frame;
                let listed = line
                    .and_then(|line| frame.strip(number, line))
                    .and_then(|line| parse_line(line, self.kind));
                if let Some(listed) = listed.transpose() {
                    return Ok(Some(NumberedLine { number, listed }));
                }
            }
            if self.ended {
                let unended = self.frame.end();
                let listed = Err(LineError::UnendedSignature);
                return Ok(unended.map(|number| NumberedLine { number, listed }));
            }
            if self.exhausted {
                self.end().await?;
                continue;
            }
            match self.blocks.next().await {
                Some(block) => {
                    let block = block.map_err(|error| error.at(self.display()))?;
                    self.received += block.len() as u64;
                    self.lines.push(&block);
                }
                None => self.exhausted = true,
            }
        }
    }

    /// The location of the manifest, for messages.
    pub fn display(&self) -> impl fmt::Display + '_ {
        self.location.display(&self.path)
    }

    /// The error for a malformed line. It names the manifest and the line.
    pub fn line_error(&self, number: u64, error: LineError) -> Error {
        Error::new(ErrorKind::InvalidInput, "use manifest")
            .at(self.display())
            .because(format!("line {number} {error}"))
    }

    /// The kind of the digests without a tag.
    pub fn kind(&self) -> DigestKind {
        self.kind
    }

    /// Whether the manifest is the file `path` of `storage`.
    pub(crate) fn is_at(&self, storage: &dyn Storage, path: &RelPath) -> bool {
        self.path == *path && self.location == *storage.location()
    }

    /// Checks at the end of the stream that all bytes arrived, if their number is known, and that the file has not
    /// changed.
    async fn end(&mut self) -> Result<()> {
        let changed = |detail: String| {
            Error::new(ErrorKind::Changed, "read").at(self.display()).because(detail)
        };
        let size = self.file.identity().size;
        if size != UNKNOWN_SIZE && self.received != size {
            return Err(changed(format!("ended after {} of {size} bytes", self.received)));
        }
        let now = self.file.recheck().await.map_err(|error| error.at(self.display()))?;
        if now != *self.file.identity() {
            return Err(changed(format!("it was {}, and now is {now}", self.file.identity())));
        }
        self.ended = true;
        Ok(())
    }
}

impl fmt::Debug for ManifestReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManifestReader({}, line {})", self.display(), self.lines.number)
    }
}

/// Splits blocks into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Where the next line starts in `bytes`.
    start: usize,
    /// Where the search for its line feed continues.
    searched: usize,
    /// Number of the last line returned.
    number: u64,
    /// The current line is too long and has been reported; its remaining bytes are dropped.
    dropping: bool,
}

impl Lines {
    fn push(&mut self, block: &Block) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        for piece in block.pieces() {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// The next line and its number. With `ended`, bytes after the last line feed are a line too.
    fn next(&mut self, ended: bool) -> Option<(u64, Result<&[u8], LineError>)> {
        loop {
            let found = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
            let (start, end) = match found {
                Some(length) => {
                    let end = self.searched + length;
                    let start = std::mem::replace(&mut self.start, end + 1);
                    self.searched = end + 1;
                    (start, end)
                }
                None => {
                    self.searched = self.bytes.len();
                    let left = self.searched - self.start;
                    if left == 0 || !(ended || left > LINE_MAX || self.dropping) {
                        return None;
                    }
                    let start = std::mem::replace(&mut self.start, self.searched);
                    if self.dropping {
                        continue;
                    }
                    self.number += 1;
                    if left > LINE_MAX {
                        self.dropping = true;
                        return Some((self.number, Err(LineError::TooLong)));
                    }
                    return Some((self.number, Ok(self.line(start, self.searched))));
                }
            };
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            self.number += 1;
            if end - start > LINE_MAX {
                return Some((self.number, Err(LineError::TooLong)));
            }
            return Some((self.number, Ok(self.line(start, end))));
        }
    }

    fn line(&self, start: usize, end: usize) -> &[u8] {
        let line = &self.bytes[start..end];
        match self.number {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            _ => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn lines_of(text: &[u8], block: usize) -> Vec<(u64, Result<Vec<u8>, LineError>)> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        let mut take = |lines: &mut Lines, ended| {
            while let Some((number, line)) = lines.next(ended) {
                found.push((number, line.map(<[u8]>::to_vec)));
            }
        };
        for block in text.chunks(block) {
            lines.push(&Bytes::copy_from_slice(block).into());
            take(&mut lines, false);
        }
        take(&mut lines, true);
        found
    }

    #[test]
    fn lines_do_not_depend_on_how_the_text_is_split_into_blocks() {
        let text = b"\xef\xbb\xbfone\n\nthree\r\nfour";
        for block in 1..=text.len() {
            let lines = lines_of(text, block);
            let expected = [(1, "one"), (2, ""), (3, "three\r"), (4, "four")];
            let expected = expected.map(|(number, line)| (number, Ok(line.as_bytes().to_vec())));
            assert_eq!(lines, expected, "blocks of {block}");
        }
        assert_eq!(lines_of(b"one\n", 2).len(), 1);
        assert_eq!(lines_of(b"", 1).len(), 0);
    }

    #[test]
    fn an_overlong_line_is_reported_once() {
        let mut text = vec![b'x'; 3 * LINE_MAX];
        text.extend_from_slice(b"\nnext\n");
        for block in [1 << 10, 100_000, text.len()] {
            let lines = lines_of(&text, block);
            assert_eq!(lines[0], (1, Err(LineError::TooLong)), "blocks of {block}");
            assert_eq!(lines[1], (2, Ok(b"next".to_vec())));
            assert_eq!(lines.len(), 2);
        }
    }
}
