//! HTML helpers for all parts of the page.

/// The `id` of a scenario, for links to it.
pub(super) fn identifier(section: usize, scenario: usize) -> String {
    format!("s{}-{}", section + 1, scenario + 1)
}

/// Escapes text for use in elements and quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
