//! Splits a header into challenges and their parameters (RFC 9110, sections 11.2 and 11.6.1).

/// A challenge as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raw<'a> {
    pub(super) scheme: &'a str,
    parameters: Vec<(&'a str, String)>,
}

impl Raw<'_> {
    /// The first parameter of that name.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.parameters.iter();
        all.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }
}

/// The challenges in `header`, up to the first error.
pub(super) fn challenges(header: &str) -> Vec<Raw<'_>> {
    let mut found: Vec<Raw<'_>> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let (word, behind) = token(rest);
        if word.is_empty() {
            return found;
        }
        let behind_space = behind.trim_start_matches([' ', '\t']);
        if let Some(value) = behind_space.strip_prefix('=') {
            // A parameter of the previous challenge.
            let Some((value, behind)) = value_at(value.trim_start_matches([' ', '\t'])) else {
                return found;
            };
            rest = behind;
            if let Some(last) = found.last_mut() {
                last.parameters.push((word, value));
            }
            continue;
        }
        found.push(Raw { scheme: word, parameters: Vec::new() });
        rest = behind_space;
        // `Negotiate YII…==`: a token68, which is ignored.
        let (first, after) = token(rest);
        if !first.is_empty() || rest.starts_with('/') {
            let is_parameter =
                after.trim_start_matches([' ', '\t']).strip_prefix('=').is_some_and(|value| {
                    let value = value.trim_start_matches([' ', '\t']);
                    !value.is_empty() && !value.starts_with(['=', ','])
                });
            if !is_parameter {
                rest = &rest[rest.find(',').unwrap_or(rest.len())..];
            }
        }
    }
}

/// The value at the beginning, without its quotes, and the rest; `None` if a quote is not closed.
fn value_at(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// The token (RFC 9110, section 5.6.2) at the beginning, and the rest.
fn token(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}
