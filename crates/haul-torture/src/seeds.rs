//! Seeds that found a fault once, kept in `seeds/kept.txt`: a line has seed, target, steps and, behind a
//! `#`, the cause.

/// A seed to be played again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The seed.
    pub seed: u64,
    /// The name of the target.
    pub target: String,
    /// How many steps it takes to the one that failed.
    pub steps: usize,
}

const KEPT: &str = include_str!("../seeds/kept.txt");

/// All that are kept.
///
/// # Errors
///
/// Names the line that is none.
pub fn kept() -> Result<Vec<Kept>, String> {
    parse(KEPT)
}

fn parse(text: &str) -> Result<Vec<Kept>, String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let wrong = || format!("seeds/kept.txt: '{line}' is not: seed target steps # cause");
        let [seed, target, steps] = words[..] else { return Err(wrong()) };
        let seed = seed.parse().map_err(|_| wrong())?;
        let steps = steps.parse().map_err(|_| wrong())?;
        found.push(Kept { seed, target: target.to_owned(), steps });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_understood_and_name_targets() {
        for kept in kept().unwrap() {
            assert!(crate::target::ALL.iter().any(|kind| kind.name == kept.target), "{kept:?}");
        }
        assert_eq!(parse("7 disk 3 # why").unwrap()[0].steps, 3);
        assert!(parse("7 disk # why").is_err());
    }
}
