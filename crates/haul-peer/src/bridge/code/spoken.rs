//! The code itself: a number, and two words.

use std::fmt;
use std::str::FromStr;

use haul_storage::{Error, ErrorKind, Result};

use super::super::messages::NUMBER_MAX;
use super::words;

/// A spoken code. `Display` writes it with its words, which are a secret; `Debug` writes only its number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Code {
    number: u32,
    words: [&'static str; 2],
}

/// Why a text is not a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeError {
    /// It does not have the form of one, or neither word is in the list.
    Form,
    /// One of its words is not in the list.
    Word {
        /// Its position: 1 or 2.
        position: usize,
        /// The word of the list that differs from it by one letter, if there is one.
        near: Option<&'static str>,
    },
}

/// Without the text itself, which may be almost the secret.
impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Word { position, near } = self else {
            return f.write_str("a code is a number and two words, as in 7-orbit-candle");
        };
        let which = if *position == 1 { "first" } else { "second" };
        write!(f, "the {which} word is not in the word list")?;
        match near {
            Some(near) => write!(f, "; did you mean {near}?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CodeError {}

impl Code {
    /// A code with this number, which a bridge has chosen, and random words.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate(number: u32) -> Result<Self> {
        let mut random = [0; 4];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|error| Error::new(ErrorKind::Other, "make a code").with_source(error))?;
        let [a, b, c, d] = random;
        // The number of words is a power of two, so all are equally probable.
        let word = |bytes| words::word(usize::from(u16::from_be_bytes(bytes)) % words::COUNT);
        Ok(Self { number, words: [word([a, b]), word([c, d])] })
    }

    /// The number, which is not secret.
    pub const fn number(&self) -> u32 {
        self.number
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.words;
        write!(f, "{}-{first}-{second}", self.number)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}-…)", self.number)
    }
}

/// Case is ignored.
impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let text = text.to_ascii_lowercase();
        let parts: Vec<&str> = text.split('-').collect();
        let [number, first, second] = parts[..] else { return Err(CodeError::Form) };
        let is_number =
            number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        let number = number.parse::<u32>().ok().filter(|_| is_number).ok_or(CodeError::Form)?;
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
        if number > NUMBER_MAX || !is_word(first) || !is_word(second) {
            return Err(CodeError::Form);
        }
        match (words::find(first), words::find(second)) {
            (Some(first), Some(second)) => Ok(Self { number, words: [first, second] }),
            (None, Some(_)) => Err(CodeError::Word { position: 1, near: words::near(first) }),
            (Some(_), None) => Err(CodeError::Word { position: 2, near: words::near(second) }),
            (None, None) => Err(CodeError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_written() {
        let code: Code = "7-orbit-candle".parse().unwrap();
        assert_eq!((code.number(), code.words), (7, ["orbit", "candle"]));
        assert_eq!(code.to_string(), "7-orbit-candle");
        assert_eq!("7-Orbit-CANDLE".parse(), Ok(code.clone()));
        assert_eq!(format!("{code:?}"), "Code(7-…)");
        for number in [1, 42, NUMBER_MAX] {
            let code = Code::generate(number).unwrap();
            assert_eq!(code.to_string().parse(), Ok(code));
        }
    }

    #[test]
    fn codes_are_random() {
        let codes: Vec<_> = (0..8).map(|_| Code::generate(1).unwrap()).collect();
        assert!(codes.iter().any(|code| *code != codes[0]));
        let pairs: Vec<_> = (0..64).map(|_| Code::generate(1).unwrap().words).collect();
        assert!(pairs.iter().any(|[one, other]| one != other));
    }

    #[test]
    fn texts_of_another_form_are_refused() {
        for text in [
            "",
            "7",
            "7-orbit",
            "7-orbit-candle-orbit",
            "0-orbit-candle",
            "07-orbit-candle",
            "+7-orbit-candle",
            "-7-orbit-candle",
            "1000000-orbit-candle",
            "99999999999-orbit-candle",
            "7--candle",
            "7-orbit-",
            "7-orbit-candle/",
            "x-orbit-candle",
            "7-orbit-c4ndle",
            "7_orbit_candle",
            "7-örbit-candle",
            "2026-orbits-candles",
        ] {
            assert_eq!(text.parse::<Code>(), Err(CodeError::Form), "{text}");
        }
    }

    #[test]
    fn a_mistyped_word_is_reported_with_a_suggestion() {
        let error = "7-orbt-candle".parse::<Code>().unwrap_err();
        assert_eq!(error, CodeError::Word { position: 1, near: Some("orbit") });
        assert_eq!(
            error.to_string(),
            "the first word is not in the word list; did you mean orbit?"
        );
        let error = "7-orbit-photos".parse::<Code>().unwrap_err();
        assert_eq!(error.to_string(), "the second word is not in the word list");
    }
}
