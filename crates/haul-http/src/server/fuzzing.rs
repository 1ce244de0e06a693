//! Entry points of the fuzz targets: each takes any bytes and panics if a promise about them is broken.

use super::limits;
use super::xml::{document, parse};

/// The body of a request: what is read of it is written so that it means the same.
pub fn xml(data: &[u8]) {
    let Ok(root) = parse(data) else { return };
    let written = document(&root);
    let again = parse(written.as_bytes()).map(|root| document(&root));
    // Escaped, a namespace may be longer than one that is accepted.
    if data.len() * "&quot;".len() <= limits::NAMESPACE {
        assert_eq!(again.as_ref(), Ok(&written), "a document does not survive being written");
    }
}
