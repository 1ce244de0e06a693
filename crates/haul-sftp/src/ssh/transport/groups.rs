//! Diffie-Hellman in the groups of RFC 3526, for servers that have nothing newer (RFC 8268). The
//! arithmetic is crypto-bigint's, in constant time.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

use super::end::{End, violation};

/// Bits of a secret exponent. RFC 3526, 8 wants twice the strength of the group: for group 18, 380 bits by
/// its lower estimate and 620 by the higher one; for group 16, 300 and 480.
const EXPONENT: u32 = 512;

/// A group with the generator 2.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    bits: u32,
    /// The last hexadecimal digits of the prime's middle, if they differ from those of [`PI`].
    tail: &'static str,
}

/// 2048 bits.
pub const GROUP_14: Group = Group { bits: 2048, tail: "caa68" };
/// 4096 bits.
pub const GROUP_16: Group = Group { bits: 4096, tail: "63199" };
/// 8192 bits.
pub const GROUP_18: Group = Group { bits: 8192, tail: "" };

/// A secret exponent and its public value.
pub struct Secret {
    exponent: Zeroizing<BoxedUint>,
    parameters: BoxedMontyParams,
    /// 2 to the exponent, big-endian.
    pub public: Box<[u8]>,
}

impl Group {
    /// Generates a random secret.
    ///
    /// # Errors
    /// If the random generator fails.
    pub fn draw(self) -> Result<Secret, End> {
        let mut random = Zeroizing::new([0; EXPONENT as usize / 8]);
        aws_lc_rs::rand::fill(&mut random[..])?;
        self.secret(&random)
    }

    /// The secret with this exponent, big-endian.
    ///
    /// # Errors
    /// None: the primes are odd.
    pub fn secret(self, exponent: &[u8; EXPONENT as usize / 8]) -> Result<Secret, End> {
        let prime = Option::<Odd<BoxedUint>>::from(Odd::new(self.prime()?))
            .ok_or_else(|| violation("an even prime"))?;
        let parameters = BoxedMontyParams::new(prime);
        let exponent = Zeroizing::new(number(exponent, EXPONENT)?);
        let two = BoxedMontyForm::new(number(&[2], self.bits)?, &parameters);
        let public = two.pow(&exponent).retrieve().to_be_bytes();
        Ok(Secret { exponent, parameters, public })
    }

    /// 2^n − 2^(n−64) − 1 + 2^64 · (⌊2^(n−130) π⌋ + k): 64 one bits at both ends, and in the middle the
    /// digits of π except for the last ones, which depend on k.
    fn prime(self) -> Result<BoxedUint, End> {
        let middle = (self.bits as usize - 128) / 4;
        let ones = "f".repeat(16);
        let digits = format!("{ones}{}{}{ones}", &PI[..middle - self.tail.len()], self.tail);
        Option::from(BoxedUint::from_be_hex(&digits, self.bits))
            .ok_or_else(|| violation("a malformed number"))
    }
}

impl Secret {
    /// The shared secret, big-endian.
    ///
    /// # Errors
    /// A public value that would reveal the shared secret: not strictly between 1 and p − 1 (RFC 8268, 4).
    pub fn agree(&self, theirs: &[u8]) -> Result<Zeroizing<Vec<u8>>, End> {
        let prime = self.parameters.modulus().as_ref();
        let wrong = || violation("a Diffie-Hellman value out of range");
        let theirs = theirs.iter().position(|&byte| byte != 0).map_or(&[][..], |at| &theirs[at..]);
        if theirs.len() * 8 > prime.bits_precision() as usize {
            return Err(wrong());
        }
        let theirs = number(theirs, prime.bits_precision())?;
        let one = number(&[1], prime.bits_precision())?;
        // The values are public, so the comparison need not be constant-time.
        if theirs <= one || theirs >= prime.wrapping_sub(&one) {
            return Err(wrong());
        }
        let shared = BoxedMontyForm::new(theirs, &self.parameters).pow(&self.exponent);
        let shared = Zeroizing::new(Zeroizing::new(shared).retrieve());
        Ok(Zeroizing::new(shared.to_be_bytes().into_vec()))
    }
}

fn number(bytes: &[u8], bits: u32) -> Result<BoxedUint, End> {
    BoxedUint::from_be_slice(bytes, bits).map_err(|_| violation("a number that is too long"))
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The middle of the prime of group 18, between the ones at both ends: the bits of π in hexadecimal, from its
/// first one bit (so not 3.243f…). The last digits depend on k.
const PI: &str = "\
    c90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd\
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b\
    0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf05\
    98da48361c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb9ed529077096966d\
    670c354e4abc9804f1746c08ca18217c32905e462e36ce3be39e772c180e86039b2783a2ec07a28f\
    b5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa051015728e5a8aaac42d\
    ad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7\
    abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64\
    521f2b18177b200cbbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e\
    4b82d120a92108011a723c12a787e6d788719a10bdba5b2699c327186af4e23c1a946834b6150bda\
    2583e9ca2ad44ce8dbbbc2db04de8ef92e8efc141fbecaa6287c59474e6bc05d99b2964fa090c3a2\
    233ba186515be7ed1f612970cee2d7afb81bdd762170481cd0069127d5b05aa993b4ea988d8fddc1\
    86ffb7dc90a6c08f4df435c93402849236c3fab4d27c7026c1d4dcb2602646dec9751e763dba37bd\
    f8ff9406ad9e530ee5db382f413001aeb06a53ed9027d831179727b0865a8918da3edbebcf9b14ed\
    44ce6cbaced4bb1bdb7f1447e6cc254b332051512bd7af426fb8f401378cd2bf5983ca01c64b92ec\
    f032ea15d1721d03f482d7ce6e74fef6d55e702f46980c82b5a84031900b1c9e59e7c97fbec7e8f3\
    23a97a7e36cc88be0f1d45b7ff585ac54bd407b22b4154aacc8f6d7ebf48e1d814cc5ed20f8037e0\
    a79715eef29be32806a1d58bb7c5da76f550aa3d8a1fbff0eb19ccb1a313d55cda56c9ec2ef29632\
    387fe8d76e3c0468043e8f663f4860ee12bf2d5b0b7474d6e694f91e6dbe115974a3926f12fee5e4\
    38777cb6a932df8cd8bec4d073b931ba3bc832b68d9dd300741fa7bf8afc47ed2576f6936ba42466\
    3aab639c5ae4f5683423b4742bf1c978238f16cbe39d652de3fdb8befc848ad922222e04a4037c07\
    13eb57a81a23f0c73473fc646cea306b4bcbc8862f8385ddfa9d4b7fa2c087e879683303ed5bdd3a\
    062b3cf5b3a278a66d2a13f83f44f82ddf310ee074ab6a364597e899a0255dc164f31cc50846851d\
    f9ab48195ded7ea1b1d510bd7ee74d73faf36bc31ecfa268359046f4eb879f924009438b481c6cd7\
    889a002ed5ee382bc9190da6fc026e479558e4475677e9aa9e3050e2765694dfc81f56e880b96e71\
    60c980dd98edd3df";

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    /// Checked by the compiler: `assert_wiped` accepts only types that are wiped.
    #[test]
    fn a_secret_exponent_is_wiped_when_dropped() {
        fn assert_wiped(_: &impl ZeroizeOnDrop) {}
        assert_wiped(&GROUP_14.draw().unwrap().exponent);
    }

    #[test]
    fn both_sides_agree_and_public_values_that_reveal_the_secret_are_refused() {
        for group in [GROUP_14, GROUP_16] {
            let (ours, theirs) = (group.draw().unwrap(), group.draw().unwrap());
            assert_eq!(ours.public.len() * 8, group.bits as usize);
            assert_eq!(ours.agree(&theirs.public).unwrap(), theirs.agree(&ours.public).unwrap());
            let prime = group.prime().unwrap().to_be_bytes();
            let mut less = prime.to_vec();
            *less.last_mut().unwrap() -= 1;
            let longer = [&[1], &prime[..]].concat();
            for bad in [&[][..], &[0], &[1], &less, &prime, &longer] {
                assert!(ours.agree(bad).is_err());
            }
        }
    }
}
