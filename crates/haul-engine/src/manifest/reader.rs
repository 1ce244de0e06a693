//! Reads a manifest line by line from any storage, without ever holding it whole.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use haul_storage::{
    Block, BlockStream, DigestKind, Error, ErrorKind, Location, Range, ReadAt, RelPath, Result,
    Storage,
};

use super::frame::Frame;
use super::line::{LineError, Listed, parse_line};

/// The longest line that is read. A path has at most 4 096 bytes on Linux and 32 767 characters on
/// Windows; escaped that may double.
const LINE_MAX: usize = 256 << 10;

/// Some Windows editors put it in front of every text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of a manifest that lists something, or should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Which line, counted from 1.
    pub number: u64,
    /// What it lists, or why that cannot be told.
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
    /// The stream has given its last block and must not be asked again.
    exhausted: bool,
    ended: bool,
}

impl ManifestReader {
    /// Opens a manifest whose digests without a tag are of `kind`.
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

    /// The next line that lists something; `None` after the last. Empty lines and comments are
    /// passed over. An `Err` of this function means that the manifest cannot be read on; a line
    /// that makes no sense is an `Err` within. A future that is dropped loses nothing.
    pub async fn next(&mut self) -> Result<Option<Numbered>> {
        loop {
            while let Some((number, line)) = self.lines.next(self.ended) {
                let frame = &mut self.frame;
                let listed = line
                    .and_then(|line| frame.strip(number, line))
                    .and_then(|line| parse_line(line, self.kind));
                if let Some(listed) = listed.transpose() {
                    return Ok(Some(Numbered { number, listed }));
                }
            }
            if self.ended {
                let unended = self.frame.end();
                let listed = Err(LineError::UnendedSignature);
                return Ok(unended.map(|number| Numbered { number, listed }));
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

    /// The location for messages.
    pub fn display(&self) -> impl fmt::Display + '_ {
        self.location.display(&self.path)
    }

    /// The error for a line that makes no sense: it names the manifest and the line.
    pub fn line_error(&self, number: u64, error: LineError) -> Error {
        Error::new(ErrorKind::InvalidInput, "use manifest")
            .at(self.display())
            .because(format!("line {number} {error}"))
    }

    /// Which digests the lines without a tag have.
    pub fn kind(&self) -> DigestKind {
        self.kind
    }

    /// Whether the manifest is the file `path` of `storage`.
    pub(crate) fn is_at(&self, storage: &dyn Storage, path: &RelPath) -> bool {
        self.path == *path && self.location == *storage.location()
    }

    async fn end(&mut self) -> Result<()> {
        let changed = |detail: String| {
            Error::new(ErrorKind::Changed, "read").at(self.display()).because(detail)
        };
        let size = self.file.identity().size;
        if self.received != size {
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

/// Cuts blocks into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Where the next line starts, and up to where no line feed was found.
    start: usize,
    searched: usize,
    number: u64,
    /// The line that is being read was too long, and was said to be: its rest is dropped.
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

    /// The next line and its number; what follows the last line feed only if nothing comes after.
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
    fn lines_are_the_same_however_the_text_is_cut() {
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
    fn a_line_without_end_is_told_once_and_never_held() {
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
