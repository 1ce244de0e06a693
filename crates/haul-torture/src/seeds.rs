//! Regression seeds: those that once found a bug, in `seeds/kept.txt`. A line has seed, target, steps, generation and,
//! behind `#`, the cause.

/// A seed to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The seed.
    pub seed: u64,
    /// The name of the target.
    pub target: String,
    /// The number of steps up to the one that failed.
    pub steps: usize,
    /// The generation of random choices that the seed was found with.
    pub generation: u32,
}

const KEPT: &str = include_str!("../seeds/kept.txt");

/// All regression seeds.
///
/// # Errors
///
/// An invalid line, which the error names.
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
        let wrong =
            || format!("seeds/kept.txt: '{line}' is not: seed target steps generation # cause");
        let [seed, target, steps, generation] = words[..] else { return Err(wrong()) };
        let seed = seed.parse().map_err(|_| wrong())?;
        let steps = steps.parse().map_err(|_| wrong())?;
        let generation = generation.parse().map_err(|_| wrong())?;
        found.push(Kept { seed, target: target.to_owned(), steps, generation });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kept_seeds_parse_and_name_existing_targets() {
        for kept in kept().unwrap() {
            assert!(crate::target::ALL.iter().any(|kind| kind.name == kept.target), "{kept:?}");
        }
        let parsed = &parse("7 disk 3 1 # why").unwrap()[0];
        assert_eq!((parsed.steps, parsed.generation), (3, 1));
        assert!(parse("7 disk 3 # why").is_err());
    }
}
