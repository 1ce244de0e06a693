//! Checks that the file that was opened is the one that was listed.
//!
//! A server may list a file of 5 MB and respond with 5 bytes of a login page. A file may also simply have
//! changed since it was listed. So on a difference the source is listed once more and the file restarts, for the
//! last time if the listing shows nothing new.

use haul_storage::{Entry, Error, ErrorKind, Result, UNKNOWN_SIZE};

use crate::plan::Item;

/// Checks the length of the version that was opened.
///
/// # Errors
/// `Changed` if it differs from the listed one.
pub fn check(item: &Item, opened_bytes: u64) -> Result<()> {
    // An unlisted length cannot be compared, and one that is not known yet is compared at the end.
    let Some(listed) = item.source.known_size() else { return Ok(()) };
    if opened_bytes == listed || opened_bytes == UNKNOWN_SIZE {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Changed, "copy").because(format!(
        "it is listed with {listed} bytes, but opening it gives {opened_bytes} bytes"
    )))
}

/// The source as it is now, for another attempt.
///
/// # Errors
/// It is not a file any more, or does not exist. Other errors are ignored, as they occur again in the
/// attempt, which reports them: the entry stays as it was.
pub async fn stat_again(item: &Item) -> Result<Entry> {
    match item.job.job.source.stat(&item.source.path).await {
        Ok(now) if now.is_file() => Ok(now),
        Ok(_) => Err(Error::new(ErrorKind::Changed, "copy")
            .because("it was a file when it was listed, but is not any more")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
        Err(_) => Ok(item.source.clone()),
    }
}
