//! Entry points of the fuzz targets: each takes any bytes and panics if an invariant is violated.

use super::limits;
use super::xml::{document, parse};

/// The body of a request: parsing, writing and parsing it again gives the same document.
pub fn xml(data: &[u8]) {
    let Ok(root) = parse(data) else { return };
    let written = document(&root);
    let again = parse(written.as_bytes()).map(|root| document(&root));
    // When escaped, a namespace may become longer than accepted.
    if data.len() * "&quot;".len() <= limits::NAMESPACE {
        assert_eq!(again.as_ref(), Ok(&written), "a document does not survive being written");
    }
}
