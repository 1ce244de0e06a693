//! Finds the date in a line of `ls -l`, in the formats and languages that servers use. Only its end matters,
//! because the file name follows it. Its value is not used: the time zone is unknown, and most have no seconds.

/// Which fields are accepted as a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// A month by name, or a year, month and day.
    Sure,
    /// A month by number, and a time or a year: `3 29 03:26`.
    Numbers,
    /// Like `Sure`, after a size that is not separated from the group before it.
    GluedSize,
}

/// The extent of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    /// Number of fields.
    pub(super) fields: usize,
    /// Whether several spaces may follow, as padding for a missing time.
    pub(super) padded: bool,
}

/// Names and abbreviations of months in ASCII; the first 24 are English. Names with other letters are not
/// listed: any word with a letter that is not ASCII may be a month.
const MONTHS: &[&str] = &[
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
    "sept",
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december", // English
    "januar",
    "februar",
    "maerz",
    "mrz",
    "mai",
    "juni",
    "juli",
    "okt",
    "oktober",
    "dez",
    "dezember", // German
    "janv",
    "fevr",
    "fev",
    "mars",
    "avr",
    "avril",
    "juin",
    "juil",
    "juillet",
    "aout",
    "octo",
    // French
    "ene",
    "abr",
    "ago",
    "dic", // Spanish
    "gen",
    "mag",
    "giu",
    "lug",
    "set",
    "ott", // Italian
    "out", // Portuguese
    "mrt",
    "mei",
    "maj",
    "des", // Dutch, Scandinavian
    "tammi",
    "helmi",
    "maalis",
    "huhti",
    "touko",
    "elo",
    "syys",
    "loka",
    "marras",
    "joulu",
    // Finnish
    "febr",
    "szept", // Hungarian
    "sty",
    "lut",
    "kwi",
    "cze",
    "lip",
    "sie",
    "wrz",
    "paz",
    "lis",
    "gru", // Polish
    "led",
    "uno",
    "bre",
    "dub",
    "kve",
    "cer",
    "srp",
    "pro", // Czech
    "oca",
    "nis",
    "haz",
    "tem",
    "eyl",
    "eki",
    "kas",
    "ara", // Turkish
];

/// The date at the start of `words`, if there is one. `foreign` also accepts other languages than English.
pub(super) fn read(words: &[&[u8]], certainty: Certainty, foreign: bool) -> Option<Date> {
    let word = |n: usize| words.get(n).copied().unwrap_or_default();
    let (first, second, third) = (word(0), word(1), word(2));
    if certainty == Certainty::Numbers {
        let both = is_small(first, 12) && is_small(second, 31) && is_time_or_year(third);
        let dashed = is_month_and_day(first) && is_time_or_year(second);
        return (both || dashed)
            .then_some(Date { fields: if both { 3 } else { 2 }, padded: false });
    }
    if is_whole(first) {
        let zone = |n: usize| is_zone(word(n));
        let time = is_time(second);
        let fields = if time && zone(2) { 3 } else { 1 + usize::from(time) };
        return Some(Date { fields, padded: !time });
    }
    let is_month = |text: &[u8]| is_english(text) || (foreign && is_foreign(text));
    if (is_month(first) && is_small(second, 31)) || (is_small(first, 31) && is_month(second)) {
        if !is_time_or_year(third) {
            return None;
        }
        // A year may follow a time with seconds, and a time may follow a year (`Oct 5, 2004 10:11`, with the
        // comma).
        let seconds = third.iter().filter(|byte| **byte == b':').count() == 2;
        let comma = second.ends_with(b",") && !is_time(third);
        let more = (seconds && is_year(word(3))) || (comma && is_time(word(3)));
        return Some(Date { fields: 3 + usize::from(more), padded: false });
    }
    // 4月 18日 2003年, 8月 17 08:52, 2005年 1月 6日: numbers, some with a unit sign.
    let month = is_small(first, 12) && has_sign(first);
    if foreign && month && is_small(second, 31) && is_time_or_year(third) {
        return Some(Date { fields: 3, padded: false });
    }
    let signs = [first, second, third].iter().any(|text| has_sign(text));
    let year_first = is_year(first) && is_small(second, 12) && is_small(third, 31);
    (foreign && year_first && signs).then_some(Date { fields: 3, padded: false })
}

fn is_english(text: &[u8]) -> bool {
    is_one_of(text, &MONTHS[..24])
}

fn is_foreign(text: &[u8]) -> bool {
    let letters = text.trim_ascii_end();
    let letters = letters.strip_suffix(b",").unwrap_or(letters);
    let letters = letters.strip_suffix(b".").unwrap_or(letters);
    let other = letters.iter().any(|byte| !byte.is_ascii())
        && letters.iter().all(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
    other || is_one_of(text, MONTHS)
}

fn is_one_of(text: &[u8], months: &[&str]) -> bool {
    let text = text.strip_suffix(b",").unwrap_or(text);
    let text = text.strip_suffix(b".").unwrap_or(text);
    months.iter().any(|month| month.as_bytes().eq_ignore_ascii_case(text))
}

/// `2024-02-03`, `24-04-2003`, `1999/10/12`, `2004.07.15`, `01-jun-99`.
fn is_whole(text: &[u8]) -> bool {
    let Some(separator) = text.iter().copied().find(|byte| b"-/.".contains(byte)) else {
        return false;
    };
    let parts: Vec<_> = text.split(|byte| *byte == separator).collect();
    let [first, second, third] = parts[..] else { return false };
    let year = |text: &[u8]| text.len() == 4 && is_digits(text);
    let day = |text: &[u8]| text.len() == 2 && is_digits(text);
    let numbers = (year(first) && day(third)) || (day(first) && year(third));
    let named = (1..=2).contains(&first.len())
        && is_digits(first)
        && is_one_of(second, MONTHS)
        && (day(third) || year(third));
    (numbers && day(second)) || named
}

/// `09-26`.
fn is_month_and_day(text: &[u8]) -> bool {
    text.len() == 5 && text[2] == b'-' && is_digits(&text[..2]) && is_digits(&text[3..])
}

/// A number from 1 to `most`, possibly followed by a dot, a comma, both, or a unit sign.
fn is_small(text: &[u8], most: u32) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let value = digits
        .iter()
        .fold(0_u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    digits.len() <= 2 && (1..=most).contains(&value) && is_rest(rest)
}

/// Four digits, possibly followed by a dot, a comma, both, or a unit sign.
fn is_year(text: &[u8]) -> bool {
    text.len() >= 4 && is_digits(&text[..4]) && is_rest(&text[4..])
}

fn is_rest(rest: &[u8]) -> bool {
    matches!(rest, b"" | b"." | b"," | b".,") || has_only_sign(rest)
}

/// Whether the text after a number is a unit sign such as `月`: 1 to 4 bytes, the first of them not ASCII, and
/// no digits.
fn has_only_sign(rest: &[u8]) -> bool {
    (1..=4).contains(&rest.len()) && !rest[0].is_ascii() && rest.iter().all(|b| !b.is_ascii_digit())
}

fn has_sign(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    has_only_sign(&text[digits..])
}

fn is_time_or_year(text: &[u8]) -> bool {
    is_time(text) || is_year(text)
}

/// `9:47`, `10:11`, `10:11:12`, `10:11:12.123456789`.
fn is_time(text: &[u8]) -> bool {
    let (text, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&text[..dot], Some(&text[dot + 1..])),
        None => (text, None),
    };
    let parts: Vec<_> = text.split(|byte| *byte == b':').collect();
    let right = |part: &&[u8]| (1..=2).contains(&part.len()) && is_digits(part);
    (2..=3).contains(&parts.len())
        && parts.iter().all(right)
        && parts[1..].iter().all(|part| part.len() == 2)
        && fraction.is_none_or(|digits| parts.len() == 3 && is_digits(digits))
}

/// `+0100`.
fn is_zone(text: &[u8]) -> bool {
    text.len() == 5 && b"+-".contains(&text[0]) && is_digits(&text[1..])
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}
