//! Data sets: files made from a seed, and the comparison of a copy with them.
//!
//! Content is pseudo-random and cannot be compressed. Each file is hashed as it is made, so a comparison
//! reads only the copy.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom as SeekTo, seek};
use rustix::io::Errno;
use serde::Deserialize;

/// Number, size and layout of the files of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// Number of files.
    pub files: u32,
    /// Bytes of data in each file.
    pub bytes: u64,
    /// Directories over which the files are spread evenly; 0 puts all files at the top.
    #[serde(default)]
    pub directories: u32,
    /// Size of each file if it is sparse: its data are pieces at even distances, with holes between.
    #[serde(default)]
    pub sparse_size: Option<u64>,
}

/// A data set on a disk.
#[derive(Debug, Clone)]
pub struct Dataset {
    root: PathBuf,
    spec: DataSpec,
    digests: Vec<blake3::Hash>,
}

const BLOCK: usize = 256 << 10;
/// Pieces of a sparse file.
const PIECES: u64 = 64;

impl DataSpec {
    /// Bytes of data in all files.
    pub fn total(&self) -> u64 {
        u64::from(self.files) * self.bytes
    }

    /// Size of each file, holes included.
    fn size(&self) -> u64 {
        self.sparse_size.unwrap_or(self.bytes).max(self.bytes)
    }

    /// Where the bytes of a file are: offsets and lengths.
    fn pieces(&self) -> Vec<(u64, u64)> {
        match self.sparse_size {
            None => vec![(0, self.bytes)],
            Some(_) => {
                let (length, distance) = (self.bytes / PIECES, self.size() / PIECES);
                let last = length + self.bytes % PIECES;
                let length = |n| if n == PIECES - 1 { last } else { length };
                (0..PIECES).map(|n| (n * distance, length(n))).collect()
            }
        }
    }

    /// The name of file `n`, relative to the root.
    fn name(&self, n: u32) -> String {
        match self.directories {
            0 if self.files == 1 => "file".to_owned(),
            0 => format!("file{n:02}"),
            directories => format!("d{:04}/f{n:06}", n % directories),
        }
    }

    /// Makes the files in the new directory `root`.
    pub fn make(&self, root: &Path) -> io::Result<Dataset> {
        fs::create_dir_all(root)?;
        for directory in 0..self.directories {
            fs::create_dir(root.join(format!("d{directory:04}")))?;
        }
        let mut digests = Vec::with_capacity(self.files as usize);
        let mut block = vec![0; BLOCK];
        for n in 0..self.files {
            let mut random = Random(u64::from(n) + 1);
            let mut hasher = blake3::Hasher::new();
            let mut file = File::create_new(root.join(self.name(n)))?;
            for (offset, length) in self.pieces() {
                file.seek(SeekFrom::Start(offset))?;
                let mut left = length;
                while left > 0 {
                    let length = left.min(BLOCK as u64) as usize;
                    random.fill(&mut block);
                    hasher.update(&block[..length]);
                    file.write_all(&block[..length])?;
                    left -= length as u64;
                }
            }
            file.set_len(self.size())?;
            digests.push(hasher.finalize());
        }
        Ok(Dataset { root: root.to_owned(), spec: *self, digests })
    }
}

impl Dataset {
    /// Its root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The names of all files, relative to the root.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.spec.files).map(|n| self.spec.name(n))
    }

    /// Bytes of each file, holes included.
    pub fn file_size(&self) -> u64 {
        self.spec.size()
    }

    /// Whether `digest` is that of file `n`.
    pub fn holds(&self, n: usize, digest: &blake3::Hash) -> bool {
        self.digests.get(n) == Some(digest)
    }

    /// Reads everything into the page cache: some tools make the kernel drop what they have read, and
    /// the next tool would pay for that.
    pub fn warm(&self) -> io::Result<()> {
        let mut block = vec![0; BLOCK];
        for name in self.names() {
            let mut file = File::open(self.root.join(name))?;
            for (offset, length) in self.spec.pieces() {
                file.seek(SeekFrom::Start(offset))?;
                let mut piece = (&file).take(length);
                while piece.read(&mut block)? > 0 {}
            }
        }
        Ok(())
    }

    /// The first difference between the files below `copy` and this set; none when `copy` has the same
    /// names and contents, and a sparse file is still sparse. Metadata is not compared: not every tool and
    /// protocol preserves it.
    pub fn difference(&self, copy: &Path) -> io::Result<Option<String>> {
        // Two halves in parallel: many files take long to open, and what is measured has usually ended.
        let half = self.digests.len() / 2;
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| self.difference_in(copy, half..self.digests.len()));
            let first = self.difference_in(copy, 0..half);
            (first, second.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
        });
        if let Some(difference) = first?.or(second?) {
            return Ok(Some(difference));
        }
        let files = match count_files(copy)? {
            Ok(files) => files,
            Err(other) => {
                let name = other.strip_prefix(copy).unwrap_or(&other).display();
                return Ok(Some(format!("{name} is neither a file nor a directory")));
            }
        };
        let extra = files.saturating_sub(u64::from(self.spec.files));
        Ok((extra > 0).then(|| format!("{extra} unexpected files")))
    }

    fn difference_in(&self, copy: &Path, files: Range<usize>) -> io::Result<Option<String>> {
        let mut block = vec![0; BLOCK];
        let names = self.names().zip(&self.digests);
        for (name, digest) in names.skip(files.start).take(files.len()) {
            let mut file = match File::open(copy.join(&name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Some(format!("{name} is missing")));
                }
                Err(error) => return Err(error),
            };
            let (found, expected) = (file.metadata()?, self.spec.size());
            if found.len() != expected {
                let bytes = found.len();
                return Ok(Some(format!("{name} has {bytes} bytes instead of {expected}")));
            }
            // st_blocks counts units of 512 bytes. Metadata such as extent blocks may add some.
            if self.spec.sparse_size.is_some() && found.blocks() * 512 > self.spec.bytes / 10 * 11 {
                return Ok(Some(format!("{name} is not sparse any more")));
            }
            let mut hasher = blake3::Hasher::new();
            for (offset, length) in self.spec.pieces() {
                file.seek(SeekFrom::Start(offset))?;
                let mut piece = (&file).take(length);
                loop {
                    let length = piece.read(&mut block)?;
                    if length == 0 {
                        break;
                    }
                    hasher.update(&block[..length]);
                }
            }
            if hasher.finalize() != *digest || !self.has_holes(&file)? {
                return Ok(Some(format!("{name} differs in content")));
            }
        }
        Ok(None)
    }
}

impl Dataset {
    /// Whether there is nothing but zeros between the pieces of a file. Only what the file system has stored is read.
    fn has_holes(&self, file: &File) -> io::Result<bool> {
        let pieces = self.spec.pieces();
        let starts = pieces.iter().skip(1).map(|(offset, _)| *offset).chain([self.spec.size()]);
        for ((offset, length), end) in pieces.iter().zip(starts) {
            let mut at = offset + length;
            while at < end {
                let start = match seek(file, SeekTo::Data(at)) {
                    Err(Errno::NXIO) => break,
                    start => start?,
                };
                let stop = seek(file, SeekTo::Hole(start))?.min(end);
                let mut stored = vec![0; stop.saturating_sub(start).min(BLOCK as u64) as usize];
                file.read_exact_at(&mut stored, start)?;
                if stored.iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                at = start + (stored.len() as u64).max(1);
            }
        }
        Ok(true)
    }
}

/// Number of files below `directory`, or the first entry that is neither a file nor a directory. Such an entry may be
/// a link to the data set itself.
fn count_files(directory: &Path) -> io::Result<Result<u64, PathBuf>> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        count += if kind.is_file() {
            1
        } else if kind.is_dir() {
            match count_files(&entry.path())? {
                Ok(below) => below,
                other => return Ok(other),
            }
        } else {
            return Ok(Err(entry.path()));
        };
    }
    Ok(Ok(count))
}

/// splitmix64: fast and incompressible.
struct Random(u64);

impl Random {
    fn fill(&mut self, block: &mut [u8]) {
        for word in block.chunks_exact_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn copied(spec: DataSpec) -> (tempfile::TempDir, Dataset, PathBuf) {
        let temp = tempfile::tempdir().expect("a directory");
        let set = spec.make(&temp.path().join("set")).expect("a data set");
        let copy = temp.path().join("copy");
        spec.make(&copy).expect("the same again");
        (temp, set, copy)
    }

    const SMALL: DataSpec = DataSpec { files: 10, bytes: 1000, directories: 3, sparse_size: None };

    #[test]
    fn the_same_specification_gives_the_same_files() {
        let (_temp, set, copy) = copied(SMALL);
        assert_eq!(set.difference(&copy).expect("readable"), None);
        let (_temp, set, copy) = copied(DataSpec {
            files: 1,
            bytes: BLOCK as u64 * 2 + 5,
            directories: 0,
            sparse_size: None,
        });
        assert_eq!(set.difference(&copy).expect("readable"), None);
    }

    /// Formerly, the remainder was left out.
    #[test]
    fn the_pieces_of_a_sparse_file_have_all_its_bytes() {
        for bytes in [0, 63, 64, 6463, 9999] {
            let sparse_size = Some(10_000);
            let spec = DataSpec { files: 1, bytes, directories: 0, sparse_size };
            let (mut total, mut end) = (0, 0);
            for (offset, length) in spec.pieces() {
                assert!(offset >= end, "{bytes} bytes: {:?}", spec.pieces());
                (total, end) = (total + length, offset + length);
            }
            assert_eq!(total, bytes);
            assert!(end <= 10_000, "{bytes} bytes: {:?}", spec.pieces());
        }
    }

    #[test]
    fn changed_missing_and_extra_files_are_differences() {
        let (_temp, set, copy) = copied(SMALL);
        let file = copy.join("d0001/f000004");
        let good = fs::read(&file).expect("it exists");
        let mut bad = good.clone();
        bad[999] ^= 1;
        let difference = || set.difference(&copy).expect("readable").expect("a difference");
        fs::write(&file, &bad).expect("writable");
        assert_eq!(difference(), "d0001/f000004 differs in content");
        fs::write(&file, &good[..999]).expect("writable");
        assert_eq!(difference(), "d0001/f000004 has 999 bytes instead of 1000");
        fs::remove_file(&file).expect("removable");
        assert_eq!(difference(), "d0001/f000004 is missing");
        fs::write(&file, &good).expect("writable");
        fs::write(copy.join("left.part"), "").expect("writable");
        assert_eq!(difference(), "1 unexpected files");
    }

    /// Formerly, links to files went unnoticed, and with a link to a directory the number of extra files overflowed.
    #[test]
    fn a_link_is_no_copy() {
        for name in ["d0001", "d0001/f000004"] {
            let (_temp, set, copy) = copied(SMALL);
            let link = copy.join(name);
            match link.is_dir() {
                true => fs::remove_dir_all(&link).expect("removable"),
                false => fs::remove_file(&link).expect("removable"),
            }
            symlink(set.root().join(name), &link).expect("a link");
            let expected = format!("{name} is neither a file nor a directory");
            assert_eq!(set.difference(&copy).expect("readable"), Some(expected));
        }
    }

    #[test]
    fn a_sparse_file_is_compared_by_its_pieces_and_must_stay_sparse() {
        let spec =
            DataSpec { files: 1, bytes: 64 * 4096, directories: 0, sparse_size: Some(1 << 30) };
        let (_temp, set, copy) = copied(spec);
        let difference = || set.difference(&copy).expect("readable");
        assert_eq!(difference(), None);
        let file = File::options().write(true).open(copy.join("file")).expect("it exists");
        (&file).seek(SeekFrom::Start(63 << 24)).expect("it can seek");
        (&file).write_all(b"x").expect("writable");
        assert_eq!(difference().as_deref(), Some("file differs in content"));
        spec.make(&copy.join("again")).expect("the same again");
        fs::rename(copy.join("again/file"), copy.join("file")).expect("a rename");
        fs::remove_dir(copy.join("again")).expect("removable");
        assert_eq!(difference(), None);
        // Formerly, what had been written into a hole went unnoticed.
        let file = File::options().write(true).open(copy.join("file")).expect("it exists");
        file.write_all_at(b"x", (63 << 24) + 5000).expect("writable");
        assert_eq!(difference().as_deref(), Some("file differs in content"));
        (&file).seek(SeekFrom::Start(1 << 20)).expect("it can seek");
        (&file).write_all(&vec![0; 1 << 20]).expect("writable");
        file.sync_all().expect("it can be written");
        assert_eq!(difference().as_deref(), Some("file is not sparse any more"));
    }
}
