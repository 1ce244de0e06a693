//! Checks that the file that was opened is the one that was listed.
//!
//! A server may list a file of 5 MB and respond with 5 bytes of a login page. A file may also simply have
//! changed since it was listed. So on a difference the source is looked up once more and the file restarts, for the
//! last time if the lookup shows nothing new. An index page of a web server may have rounded lengths: then the length
//! of the opened file must round to the listed one.

use haul_storage::{Entry, Error, ErrorKind, Result, UNKNOWN_SIZE};

use crate::plan::Item;

/// Checks the length of the version that was opened.
///
/// # Errors
/// `Changed` if it differs from the listed one.
pub fn check(item: &Item, opened_bytes: u64) -> Result<()> {
    // A length that is not known yet is compared at the end.
    if opened_bytes == UNKNOWN_SIZE {
        return Ok(());
    }
    let listed = match (item.source.known_size(), &item.source.rounded_size) {
        (Some(listed), _) if listed != opened_bytes => listed.to_string(),
        (_, Some(rounded)) if !rounded.contains(opened_bytes) => {
            format!("{} to {}", rounded.start(), rounded.end().saturating_sub(1))
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Changed, "copy").because(format!(
        "it is listed with {listed} bytes, but opening it gives {opened_bytes} bytes"
    )))
}

/// Whether the length of an entry is known and agrees with a rounded one.
fn is_consistent(entry: &Entry) -> bool {
    let rounded = |bytes| entry.rounded_size.as_ref().is_none_or(|rounded| rounded.contains(bytes));
    entry.known_size().is_some_and(rounded)
}

/// The source as it is now, for another attempt.
///
/// # Errors
/// It is not a file any more, or does not exist. Other errors are ignored, as they occur again in the
/// attempt, which reports them: the entry stays as it was.
pub async fn stat_again(item: &Item) -> Result<Entry> {
    match item.job.job.source.stat(&item.source.path).await {
        Ok(mut now) if now.is_file() => {
            if !is_consistent(&item.source) {
                // Without a known length that agrees with it, only the rounded length reveals a wrong response.
                now.rounded_size = now.rounded_size.or_else(|| item.source.rounded_size.clone());
            }
            Ok(now)
        }
        Ok(_) => Err(Error::new(ErrorKind::Changed, "copy")
            .because("it was a file when it was listed, but is not any more")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
        Err(_) => Ok(item.source.clone()),
    }
}
