//! HTML helpers for all parts of the page.

/// The `id` of a scenario, for links to it.
pub(super) fn identifier(section: usize, scenario: usize) -> String {
    format!("s{}-{}", section + 1, scenario + 1)
}

/// Escapes text for use in elements and quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}
