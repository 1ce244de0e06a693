//! Pseudo-random numbers that are the same in every run (SplitMix64).

/// A pseudo-random sequence, determined by its seed.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must give unrelated sequences.
        let mut chance = Self(seed.wrapping_mul(0xd134_2543_de82_ef95));
        chance.next_u64();
        chance
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 to below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next_u64() % (high - low + 1)
    }

    /// True with probability 1/`n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random element of a slice, which must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// `length` bytes. BLAKE3 generates them, which is fast in unoptimised builds too.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut source = blake3::Hasher::new();
        source.update(&self.next_u64().to_le_bytes());
        source.finalize_xof().fill(&mut bytes);
        bytes
    }
}
