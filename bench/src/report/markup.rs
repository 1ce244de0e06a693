//! What all parts of the page need to write HTML.

/// What a link to a scenario names.
pub(super) fn identifier(section: usize, scenario: usize) -> String {
    format!("s{}-{}", section + 1, scenario + 1)
}

/// Text that cannot be taken for markup, within elements and within quoted attributes.
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
