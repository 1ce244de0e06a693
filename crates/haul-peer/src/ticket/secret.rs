//! The secret of a ticket, which admits its holder to a share.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use haul_storage::{Error, ErrorKind, Result};
use zeroize::Zeroize;

/// 128 random bits. Their memory is wiped when they are dropped, they are never printed, and they are compared in
/// constant time.
#[derive(Clone)]
pub struct Secret([u8; Self::LEN]);

impl Secret {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Takes over the bytes of a secret.
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// A new random secret.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self> {
        let mut secret = Self([0; Self::LEN]);
        aws_lc_rs::rand::fill(&mut secret.0)
            .map_err(|error| Error::new(ErrorKind::Other, "make a secret").with_source(error))?;
        Ok(secret)
    }

    /// The bytes themselves, to prove knowledge of them or to encode them.
    pub const fn expose(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Secret {}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_random_and_compared_by_all_bytes() {
        let secret = Secret::generate().unwrap();
        assert_eq!(secret, secret.clone());
        assert_ne!(secret, Secret::generate().unwrap());
        for at in 0..Secret::LEN {
            let mut bytes = *secret.expose();
            bytes[at] ^= 0x80;
            assert_ne!(secret, Secret::new(bytes), "{at}");
        }
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", Secret::new([7; 16])), "***");
    }
}
