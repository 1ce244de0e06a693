//! Patterns of ssh_config(5) and of known_hosts in sshd(8): `*`, `?`, and lists in which `!` negates
//! a pattern.

/// True if the whole of `text` matches `pattern`: `*` matches any text, `?` one character. The match
/// is case-sensitive; callers that ignore case convert to lower case first.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Backtracking point: the last star, and where the text after it begins on the next attempt.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, t + 1));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((star, next)) => {
                    retry = Some((star, next + 1));
                    p = star + 1;
                    t = next;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// True if `text` matches a list: at least one pattern matches and no negated one (`!pattern`) does.
pub fn matches_list<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(negated, text) => return false,
            Some(_) => {}
            None => found |= matches(pattern, text),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_one_character() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("192.168.0.?", "192.168.0.7", true),
            ("192.168.0.?", "192.168.0.77", false),
            ("*.co.uk", "a.b.co.uk", true),
            ("*.co.uk", "co.uk", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_negated_match_wins_and_negation_alone_never_matches() {
        assert!(matches_list(["*.example.org", "!dialup.example.org"], "a.example.org"));
        assert!(!matches_list(["*.example.org", "!dialup.example.org"], "dialup.example.org"));
        assert!(!matches_list(["!a"], "b"));
    }

    fn matches_recursively(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                (0..=text.len()).any(|skip| matches_recursively(rest, &text[skip..]))
            }
            (Some((p, rest)), Some((t, others))) if *p == '?' || p == t => {
                matches_recursively(rest, others)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_a_recursive_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let p: Vec<char> = pattern.chars().collect();
            let t: Vec<char> = text.chars().collect();
            prop_assert_eq!(matches(&pattern, &text), matches_recursively(&p, &t));
        }
    }
}
