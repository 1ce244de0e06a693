//! Writes all files of a data set into a mount: time until they are closed, and until the server has all of them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::view::View;
use crate::data::Dataset;

/// Bytes per write call, a size that programs commonly use.
const WRITE: usize = 128 << 10;
/// Interval between looks at the server's directory.
const PAUSE: Duration = Duration::from_millis(10);

/// Copies `data` into the mount on `point`, which shows the server's directory `result`. Waits until `deadline` at most
/// for the files to arrive.
pub(super) fn write(
    data: &Dataset,
    point: &Path,
    result: &Path,
    deadline: Instant,
) -> io::Result<View> {
    let start = Instant::now();
    copy(data, point)?;
    let closed = start.elapsed();
    let uploaded = arrival(data, result, deadline)? - start;
    Ok(View::of_parts([("until closed", closed), ("until uploaded", uploaded)], None))
}

/// Copies one file after another, as `cp -r` does. Dropping a [`File`] hides errors of closing it, but such a file does
/// not arrive.
fn copy(data: &Dataset, point: &Path) -> io::Result<()> {
    let (mut buffer, mut directories) = (vec![0; WRITE], HashSet::new());
    for name in data.names() {
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let path = point.join(&name);
        if let Some(parent) = path.parent().filter(|parent| *parent != point)
            && directories.insert(parent.to_owned())
        {
            fs::create_dir(parent).map_err(at)?;
        }
        let mut from = File::open(data.root().join(&name))?;
        let mut to = File::create_new(&path).map_err(at)?;
        loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            to.write_all(&buffer[..length]).map_err(at)?;
        }
    }
    Ok(())
}

/// When all files of `data` were in `result`, with all of their bytes.
fn arrival(data: &Dataset, result: &Path, deadline: Instant) -> io::Result<Instant> {
    let mut missing = data.names().peekable();
    let mut difference = None;
    loop {
        // Cheap looks first, since hashing would take processor time from what is measured.
        let has = |name: &String| {
            fs::metadata(result.join(name)).is_ok_and(|file| file.len() == data.file_size())
        };
        while missing.next_if(has).is_some() {}
        if missing.peek().is_none() {
            let now = Instant::now();
            difference = match data.difference(result) {
                Ok(None) => return Ok(now),
                Ok(different) => different,
                // A temporary file was renamed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Some(error.to_string()),
                Err(error) => return Err(error),
            };
        }
        if Instant::now() >= deadline {
            let name = missing.peek().map(|name| format!("{name} is not there"));
            let cause = name.or(difference).unwrap_or_default();
            return Err(io::Error::other(format!("not uploaded in time: {cause}")));
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSpec;
    use crate::record::Outcome;

    fn data(temp: &Path) -> Dataset {
        let spec = DataSpec { files: 6, bytes: 200_000, directories: 2, sparse_size: None };
        spec.make(&temp.join("data")).expect("writable")
    }

    #[test]
    fn files_are_written_and_waited_for() {
        let temp = tempfile::tempdir().expect("a directory");
        let (data, point, result) =
            (data(temp.path()), temp.path().join("mount"), temp.path().join("server"));
        fs::create_dir(&point).expect("writable");
        // A mount that uploads later: the server's directory appears a moment after the last byte is written.
        let deadline = Instant::now() + Duration::from_secs(60);
        let view = thread::scope(|scope| {
            let last = point.join(data.names().last().expect("six files"));
            let (from, to) = (&point, &result);
            let complete = move || fs::metadata(&last).is_ok_and(|file| file.len() == 200_000);
            scope.spawn(move || {
                while !complete() && Instant::now() < deadline {
                    thread::sleep(PAUSE);
                }
                fs::rename(from, to).expect("the same disk");
            });
            write(&data, &point, &result, deadline).expect("uploaded")
        });
        assert_eq!(view.outcome, Outcome::Ok);
        let names: Vec<&str> = view.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["until closed", "until uploaded"]);
        assert!(view.parts[1].seconds >= view.parts[0].seconds, "{view:?}");
        assert_eq!(data.difference(&result).expect("readable"), None);
    }

    #[test]
    fn a_file_that_does_not_arrive_is_named_in_the_error() {
        let temp = tempfile::tempdir().expect("a directory");
        let (data, result) = (data(temp.path()), temp.path().join("server"));
        fs::create_dir(&result).expect("writable");
        let error = |expected: &str| {
            let error = arrival(&data, &result, Instant::now()).expect_err("an incomplete upload");
            assert!(error.to_string().contains(expected), "{error}");
        };
        error("d0000/f000000 is not there");
        copy(&data, &result).expect("writable");
        // The right length but other bytes, as left by a program that writes zeros first.
        fs::write(result.join("d0001/f000003"), vec![0; 200_000]).expect("writable");
        error("d0001/f000003 differs in content");
    }
}
