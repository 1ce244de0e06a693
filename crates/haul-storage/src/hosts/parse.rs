//! Parses a [`HostList`].

use super::{HostList, HostListError, LONGEST_HOST, MOST_HOSTS, Part, Span, Term};

const TOO_MANY: &str = "more than 65 536 hosts";
const NO_HOST: &str = "a host is missing here";
const NO_NUMBER: &str = "a number is missing here";
const UNCLOSED: &str = "'[' without ']'";

/// Maximum digits of a number: any number of 18 digits fits into 64 bits.
const MOST_DIGITS: usize = 18;

impl HostList {
    /// Parses one list.
    ///
    /// # Errors
    /// If it is malformed, or has too many or too long hosts.
    pub fn parse(text: &str) -> Result<Self, HostListError> {
        list(text)
    }

    /// Parses a file of lists, one per line; blank lines and comments (`#`) are ignored.
    ///
    /// # Errors
    /// Those of [`HostList::parse`].
    pub fn parse_lines(text: &str) -> Result<Self, HostListError> {
        let mut all = Self::default();
        for (index, line) in text.lines().enumerate() {
            let list = line.split_once('#').map_or(line, |(list, _)| list).trim();
            if list.is_empty() {
                continue;
            }
            let numbered = |error: HostListError| HostListError { line: Some(index + 1), ..error };
            let list = Self::parse(list).map_err(numbered)?;
            all.count += list.count;
            all.terms.extend(list.terms);
            if all.count > MOST_HOSTS {
                return Err(numbered(HostListError::new(line, 0, TOO_MANY)));
            }
        }
        Ok(all)
    }
}

fn list(text: &str) -> Result<HostList, HostListError> {
    let mut parser = Parser { text, at: 0 };
    let mut list = HostList::default();
    loop {
        let start = parser.at;
        let term = parser.term()?;
        list.count = list.count.saturating_add(term.count);
        if list.count > MOST_HOSTS {
            return Err(parser.error(start, TOO_MANY));
        }
        list.terms.push(term);
        match parser.next() {
            None => return Ok(list),
            // A term ends before a comma or at the end.
            Some(_) => parser.at += 1,
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset; always at a character boundary.
    at: usize,
}

impl Parser<'_> {
    fn next(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn error(&self, at: usize, cause: &'static str) -> HostListError {
        HostListError::new(self.text, at, cause)
    }

    fn term(&mut self) -> Result<Term, HostListError> {
        let start = self.at;
        let mut parts = Vec::new();
        let mut count: u64 = 1;
        let mut longest = 0;
        loop {
            match self.next() {
                None | Some(',') => break,
                Some('[') => {
                    let part = match self.address()? {
                        Some(address) => Part::Text(address),
                        None => self.numbers()?,
                    };
                    if let Part::Numbers { spans, count: numbers } = &part {
                        count = count.saturating_mul(*numbers);
                        longest += spans.iter().map(longest_number).max().unwrap_or(0);
                    }
                    parts.push(part);
                }
                Some(']') => return Err(self.error(self.at, "']' without '['")),
                Some(_) => parts.push(self.text()?),
            }
        }
        let texts = parts.iter().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Numbers { .. } => 0,
        });
        longest += texts.sum::<usize>();
        if parts.is_empty() {
            return Err(self.error(start, NO_HOST));
        }
        if longest > LONGEST_HOST {
            return Err(self.error(start, "the name of a host has at most 253 bytes"));
        }
        Ok(Term { parts, count })
    }

    fn text(&mut self) -> Result<Part, HostListError> {
        let rest = &self.text[self.at..];
        let end = rest.find([',', '[', ']']).unwrap_or(rest.len());
        let bad = |c: char| c.is_whitespace() || c.is_control() || "/@".contains(c);
        if let Some(bad) = rest[..end].find(bad) {
            const BAD: &str = "the name of a host has no spaces, control characters, '/' or '@'";
            return Err(self.error(self.at + bad, BAD));
        }
        self.at += end;
        Ok(Part::Text(rest[..end].to_owned()))
    }

    /// An IPv6 address with its brackets, if one is next.
    fn address(&mut self) -> Result<Option<String>, HostListError> {
        let rest = &self.text[self.at..];
        let end = rest.find(']').ok_or_else(|| self.error(self.at, UNCLOSED))?;
        let address = &rest[..=end];
        if !address.contains(':') {
            return Ok(None);
        }
        self.at += address.len();
        Ok(Some(address.to_owned()))
    }

    /// `[1,3,05-09]`.
    fn numbers(&mut self) -> Result<Part, HostListError> {
        let open = self.at;
        let mut spans = Vec::new();
        let mut count: u64 = 0;
        loop {
            // Skips the bracket or the comma.
            self.at += 1;
            let span = self.span()?;
            count = count.saturating_add(span.count());
            if count > MOST_HOSTS {
                return Err(self.error(open, TOO_MANY));
            }
            spans.push(span);
            match self.next() {
                Some(',') => {}
                Some(']') => break,
                None => return Err(self.error(open, UNCLOSED)),
                Some(_) => {
                    const EXPECTED: &str = "brackets hold numbers, as in [1,3,05-09]";
                    return Err(self.error(self.at, EXPECTED));
                }
            }
        }
        self.at += 1;
        Ok(Part::Numbers { spans, count })
    }

    fn span(&mut self) -> Result<Span, HostListError> {
        let start = self.at;
        let (first, first_digits) = self.number()?;
        let padded = |value: u64, digits: usize| digits > 1 && value.to_string().len() < digits;
        let width = if padded(first, first_digits) { first_digits } else { 0 };
        if self.next() != Some('-') {
            return Ok(Span { first, last: first, width });
        }
        self.at += 1;
        let end = self.at;
        let (last, last_digits) = self.number()?;
        if last < first {
            return Err(self.error(start, "this range ends before it begins"));
        }
        if padded(last, last_digits) && last_digits != first_digits {
            return Err(self.error(end, "both ends of a range must have the same number of digits"));
        }
        Ok(Span { first, last, width })
    }

    /// A number and its count of digits.
    fn number(&mut self) -> Result<(u64, usize), HostListError> {
        let rest = &self.text[self.at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(self.error(self.at, NO_NUMBER));
        }
        let number = rest[..digits].parse().ok().filter(|_| digits <= MOST_DIGITS);
        let number = number.ok_or_else(|| self.error(self.at, "this number is too long"))?;
        self.at += digits;
        Ok((number, digits))
    }
}

/// Digits of the longest number of a span.
fn longest_number(span: &Span) -> usize {
    span.last.to_string().len().max(span.width)
}
