//! Conditional and range requests (RFC 9110, sections 13 and 14).

use std::time::SystemTime;

use http::Method;
use http::header::{self, HeaderMap, HeaderName};

use super::dates::{parsed, whole_seconds};
use super::described::Described;

/// How to respond to a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The whole file.
    Whole,
    /// `length` bytes from `offset` on.
    Part { offset: u64, length: u64 },
    /// The client has this version already (304).
    NotModified,
    /// It is not the version that the client requires (412).
    Failed,
    /// The range does not exist (416).
    NoSuchRange,
}

/// Evaluates the conditions in the order of section 13.2.2, then the range, which counts only for GET (section 14.2).
pub(super) fn judge(method: &Method, headers: &HeaderMap, file: &Described) -> Verdict {
    if headers.contains_key(header::IF_MATCH) {
        if !lists(headers, header::IF_MATCH, &file.etag(), Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if let Some(date) = date(headers, &header::IF_UNMODIFIED_SINCE)
        && whole_seconds(file.modified) > date
    {
        return Verdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        if lists(headers, header::IF_NONE_MATCH, &file.etag(), Comparison::Weak) {
            return Verdict::NotModified;
        }
    } else if let Some(date) = date(headers, &header::IF_MODIFIED_SINCE)
        && whole_seconds(file.modified) <= date
    {
        return Verdict::NotModified;
    }
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    match range {
        Some(range) if method == Method::GET && is_same_version(headers, file) => {
            part(range, file.size)
        }
        _ => Verdict::Whole,
    }
}

/// Whether `If-Range` allows a part to be sent. A date is a strong validator only if it equals that of the
/// file and is at least a second old (section 13.1.5).
fn is_same_version(headers: &HeaderMap, file: &Described) -> bool {
    let Some(wanted) = headers.get(header::IF_RANGE) else { return true };
    let Ok(wanted) = wanted.to_str() else { return false };
    if wanted.contains('"') {
        return wanted == file.etag();
    }
    let modified = whole_seconds(file.modified);
    let is_old =
        SystemTime::now().duration_since(file.modified).is_ok_and(|age| age.as_secs() >= 1);
    is_old && parsed(wanted).is_some_and(|date| date == modified)
}

/// Evaluates a single range. Several ranges, other units and invalid values mean the whole file, as section
/// 14.2 allows.
fn part(range: &str, size: u64) -> Verdict {
    let Some((first, last)) = bounds(range) else { return Verdict::Whole };
    match (first, last) {
        (None, None) => Verdict::Whole,
        (Some(first), Some(last)) if first > last => Verdict::Whole,
        (Some(first), _) if first >= size => Verdict::NoSuchRange,
        (Some(first), last) => {
            let end = last.map_or(size, |last| last.saturating_add(1).min(size));
            Verdict::Part { offset: first, length: end - first }
        }
        (None, Some(0)) => Verdict::NoSuchRange,
        (None, Some(_)) if size == 0 => Verdict::NoSuchRange,
        (None, Some(last)) => {
            Verdict::Part { offset: size.saturating_sub(last), length: last.min(size) }
        }
    }
}

fn bounds(range: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, spec) = range.split_once('=')?;
    let (first, last) = spec.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| match text {
        "" => Some(None),
        // A number that is too large lies beyond the end of any file.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(Some(digits.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    Some((number(first.trim())?, number(last.trim())?))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of tags contains this one, or is `*`.
fn lists(headers: &HeaderMap, name: HeaderName, etag: &str, comparison: Comparison) -> bool {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').map(str::trim).any(|tag| {
            let tag = match comparison {
                Comparison::Weak => tag.strip_prefix("W/").unwrap_or(tag),
                Comparison::Strong => tag,
            };
            tag == "*" || tag == etag
        })
    })
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    parsed(headers.get(name)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: i64) -> Described {
        // The tests use only its size and time.
        let mut stat = rustix::fs::stat("/dev/null").unwrap();
        stat.st_size = size;
        stat.st_mtime = 1_000_000_000;
        stat.st_mtime_nsec = 5;
        Described::new(&stat)
    }

    fn judged(lines: &[(&str, &str)], size: i64) -> Verdict {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        judge(&Method::GET, &headers, &file(size))
    }

    #[test]
    fn one_range_is_cut_to_the_file() {
        let cases = [
            ("bytes=0-0", Verdict::Part { offset: 0, length: 1 }),
            ("bytes=3-", Verdict::Part { offset: 3, length: 7 }),
            ("bytes=-4", Verdict::Part { offset: 6, length: 4 }),
            ("bytes=-40", Verdict::Part { offset: 0, length: 10 }),
            ("bytes=5-99999999999999999999999", Verdict::Part { offset: 5, length: 5 }),
            ("bytes=10-", Verdict::NoSuchRange),
            ("bytes=-0", Verdict::NoSuchRange),
            ("bytes=4-2", Verdict::Whole),
            ("bytes=0-1,3-4", Verdict::Whole),
            ("bytes=-", Verdict::Whole),
            ("lines=0-1", Verdict::Whole),
            ("bytes=+1-2", Verdict::Whole),
        ];
        for (range, expected) in cases {
            assert_eq!(judged(&[("range", range)], 10), expected, "{range}");
        }
        assert_eq!(judged(&[("range", "bytes=0-")], 0), Verdict::NoSuchRange);
        assert_eq!(judged(&[("range", "bytes=-1")], 0), Verdict::NoSuchRange);
    }

    #[test]
    fn a_part_is_sent_only_of_the_version_in_if_range() {
        let part = Verdict::Part { offset: 1, length: 1 };
        let etag = file(10).etag();
        let cases = [
            (etag.as_str(), part),
            ("\"other\"", Verdict::Whole),
            ("Sun, 09 Sep 2001 01:46:40 GMT", part),
            ("Sun, 09 Sep 2001 01:46:41 GMT", Verdict::Whole),
            ("nonsense", Verdict::Whole),
        ];
        for (version, expected) in cases {
            let lines = [("range", "bytes=1-1"), ("if-range", version)];
            assert_eq!(judged(&lines, 10), expected, "{version}");
        }
    }

    #[test]
    fn conditions_are_evaluated_by_tag_and_date() {
        let etag = file(10).etag();
        let weak = format!("\"x\", W/{etag}");
        let date = "Sun, 09 Sep 2001 01:46:40 GMT";
        let before = "Sun, 09 Sep 2001 01:46:39 GMT";
        let cases: [(&str, &str, Verdict); 9] = [
            ("if-match", "*", Verdict::Whole),
            ("if-match", &etag, Verdict::Whole),
            ("if-match", "\"x\"", Verdict::Failed),
            ("if-none-match", "\"x\"", Verdict::Whole),
            ("if-none-match", &weak, Verdict::NotModified),
            ("if-modified-since", date, Verdict::NotModified),
            ("if-modified-since", before, Verdict::Whole),
            ("if-unmodified-since", date, Verdict::Whole),
            ("if-unmodified-since", before, Verdict::Failed),
        ];
        for (name, value, expected) in cases {
            assert_eq!(judged(&[(name, value)], 10), expected, "{name}: {value}");
        }
    }
}
