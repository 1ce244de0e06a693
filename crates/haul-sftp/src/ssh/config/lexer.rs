//! Splits one line of an ssh_config file into its keyword and arguments, like ssh_config(5) and
//! OpenSSH's own lexer: `Keyword value` or `Keyword=value`, single and double quotes, a backslash
//! before a quote, a backslash or (outside quotes) a space, and a comment from an unquoted `#` at
//! the start of a word.

/// A keyword in lower case, its arguments without quotes, and the unmodified text after the keyword
/// (for options that take the rest of the line).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The keyword in lower case.
    pub keyword: String,
    /// The arguments without quotes.
    pub arguments: Vec<String>,
    /// Everything after the keyword and its separator.
    pub rest: String,
}

/// Splits a line; `None` if it is empty or a comment.
///
/// # Errors
/// Describes a syntax error.
pub fn split(line: &str) -> Result<Option<Line>, String> {
    let line = line.trim_matches([' ', '\t', '\r', '\n', '\u{c}']);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (keyword, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
        None => line.split_at(line.find([' ', '\t', '=']).unwrap_or(line.len())),
    };
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start_matches([' ', '\t']);
    if keyword.is_empty() {
        return Err("the line has no keyword".to_owned());
    }
    Ok(Some(Line {
        keyword: keyword.to_ascii_lowercase(),
        arguments: words(rest)?,
        rest: rest.to_owned(),
    }))
}

/// Splits text into words at spaces and tabs, observing quotes, backslashes and comments.
///
/// # Errors
/// If a quote is not closed.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut characters = text.chars().peekable();
    loop {
        while characters.next_if(|c| [' ', '\t'].contains(c)).is_some() {}
        match characters.peek() {
            None | Some('#') => return Ok(words),
            Some(_) => {}
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(c) = characters.next() {
            match (c, quote) {
                ('\\', _) => match characters.peek() {
                    Some(&next @ ('"' | '\'' | '\\')) => {
                        word.push(next);
                        characters.next();
                    }
                    Some(' ') if quote.is_none() => {
                        word.push(' ');
                        characters.next();
                    }
                    _ => word.push('\\'),
                },
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                (' ' | '\t', None) => break,
                (c, _) => word.push(c),
            }
        }
        if quote.is_some() {
            return Err("a quote is not closed".to_owned());
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> (String, Vec<String>) {
        let line = split(text).unwrap().unwrap();
        (line.keyword, line.arguments)
    }

    #[test]
    fn keyword_and_value_are_separated_by_space_or_equals_sign() {
        let expected = ("port".to_owned(), vec!["22".to_owned()]);
        for text in ["Port 22", "  PORT=22", "port = 22\r", "Port\t=\t22 # ssh", "\"Port\" 22"] {
            assert_eq!(line(text), expected, "{text}");
        }
    }

    #[test]
    fn quotes_keep_spaces_and_backslashes_escape_quotes() {
        assert_eq!(
            line(r#"IdentityFile "a b" 'c "d' e\ f \"g\" h#i"#).1,
            ["a b", "c \"d", "e f", "\"g\"", "h#i"]
        );
        assert_eq!(line(r#"SetEnv """#).1, [""]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_an_error() {
        assert!(split("User \"x").is_err());
        assert!(split("\"User x").is_err());
    }

    #[test]
    fn empty_lines_and_comments_are_skipped() {
        for text in ["", "   ", "# Port 22", "\t#x"] {
            assert_eq!(split(text), Ok(None), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_split_or_refused_without_panic(text in ".*") {
            let _ = split(&text);
        }

        #[test]
        fn quoted_words_survive_splitting(list in prop::collection::vec("[ -~]{0,12}", 0..5)) {
            let text: Vec<String> = list
                .iter()
                .map(|word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")))
                .collect();
            prop_assert_eq!(words(&text.join(" ")), Ok(list));
        }
    }
}
