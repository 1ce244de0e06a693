//! Encrypted keys in OpenSSL's formats.
//!
//! ```text
//! -----BEGIN RSA PRIVATE KEY-----, DEK-Info: AES-256-CBC     key by MD5 (EVP_BytesToKey)     ┐
//! -----BEGIN ENCRYPTED PRIVATE KEY-----, PBES2               key by PBKDF2 or scrypt (pkcs8) ├→ the same, plain
//! -----BEGIN ENCRYPTED PRIVATE KEY-----, PBE-SHA1-3DES       key by PKCS #12 (RFC 7292, B)   ┘
//! ```
//!
//! The encryption is determined before the user is prompted, so that no passphrase is typed in vain.

use aes::{Aes128, Aes192, Aes256};
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use data_encoding::{BASE64, BASE64_MIME, HEXLOWER_PERMISSIVE};
use des::{Des, TdesEde3};
use md5::{Digest as _, Md5};
use pkcs8::EncryptedPrivateKeyInfoRef;
use sha1::Sha1;
use zeroize::Zeroizing;

use crate::ssh::options::Secret;

/// The PEM label of an encrypted PKCS #8 key.
const PKCS8: &str = "ENCRYPTED PRIVATE KEY";

/// Block size and output size of SHA-1 in bytes.
const SHA1_BLOCK: usize = 64;
const SHA1_SIZE: usize = 20;

/// An encrypted key in a supported format.
#[derive(Debug, Clone)]
pub struct Encrypted {
    /// The PEM label of the decrypted key.
    label: String,
    how: Encryption,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Encryption {
    /// DEK-Info.
    Headers { cipher: Cipher, iv: Vec<u8> },
    /// PBES2; `bytes` is the whole PKCS #8 structure.
    Pbes2,
    /// PKCS #12: PBE-SHA1-3DES, or PBE-SHA1-2DES with two keys.
    Pkcs12 { keys: usize, salt: Vec<u8>, rounds: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cipher {
    Des,
    TripleDes,
    Aes128,
    Aes192,
    Aes256,
}

/// Determines the encryption of a key; `None` if it is not encrypted, or has none of these formats.
///
/// # Errors
/// The name of an unsupported encryption.
pub fn encryption(text: &str) -> Option<Result<Encrypted, String>> {
    let pem = Pem::read(text)?;
    if pem.label == PKCS8 {
        return Some(of_pkcs8(pem.bytes));
    }
    let (name, iv) = pem.dek_info.as_deref()?.split_once(',')?;
    Some(match Cipher::named(name.trim()) {
        Some(cipher) => {
            let iv = HEXLOWER_PERMISSIVE.decode(iv.trim().as_bytes()).unwrap_or_default();
            match iv.len() == cipher.iv() {
                true => {
                    let how = Encryption::Headers { cipher, iv };
                    Ok(Encrypted { label: pem.label, how, bytes: pem.bytes })
                }
                false => Err(format!("{} with an invalid DEK-Info", name.trim())),
            }
        }
        None => Err(name.trim().chars().filter(|c| c.is_ascii_graphic()).take(40).collect()),
    })
}

impl Encrypted {
    /// The decrypted key as PEM; `None` if the passphrase is wrong.
    pub fn decrypt(&self, passphrase: &Secret) -> Option<Secret> {
        let passphrase = passphrase.expose();
        let plain = match &self.how {
            Encryption::Headers { cipher, iv } => {
                let key = bytes_to_key(passphrase.as_bytes(), &iv[..8], cipher.key());
                cipher.decrypt(&key, iv, &self.bytes)?
            }
            Encryption::Pbes2 => {
                let key = EncryptedPrivateKeyInfoRef::try_from(&self.bytes[..]).ok()?;
                Zeroizing::new(key.decrypt(passphrase).ok()?.as_bytes().to_vec())
            }
            Encryption::Pkcs12 { keys, salt, rounds } => {
                let mut key = pkcs12(passphrase, salt, *rounds, 1, 8 * keys);
                let first = key[..8].to_vec();
                if *keys == 2 {
                    key.extend_from_slice(&first);
                }
                let iv = pkcs12(passphrase, salt, *rounds, 2, 8);
                Cipher::TripleDes.decrypt(&key, &iv, &self.bytes)?
            }
        };
        // One wrong passphrase in 256 yields valid padding.
        der::whole(&plain)?;
        let base64 = Zeroizing::new(BASE64.encode(&plain));
        let label = &self.label;
        let mut text = format!("-----BEGIN {label}-----\n");
        for line in base64.as_bytes().chunks(64) {
            text.push_str(str::from_utf8(line).ok()?);
            text.push('\n');
        }
        text.push_str(&format!("-----END {label}-----\n"));
        Some(Secret::new(text))
    }
}

/// The first private key of a PEM file, decoded from base64.
struct Pem {
    label: String,
    dek_info: Option<String>,
    bytes: Vec<u8>,
}

impl Pem {
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let label = lines.find_map(|line| {
            let label = line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
            let known = ["RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", PKCS8];
            known.contains(&label).then(|| label.to_owned())
        })?;
        let mut dek_info = None;
        let mut base64 = String::new();
        for line in lines.take_while(|line| !line.starts_with("-----END ")) {
            match line.split_once(':') {
                Some(("DEK-Info", value)) => dek_info = Some(value.to_owned()),
                Some(_) => {}
                None => base64.push_str(line),
            }
        }
        let bytes = BASE64_MIME.decode(base64.as_bytes()).ok()?;
        Some(Self { label, dek_info, bytes })
    }
}

/// Parses a PKCS #8 key: `SEQUENCE { SEQUENCE { OID, parameters }, OCTET STRING }` (RFC 5958,
/// section 3).
fn of_pkcs8(bytes: Vec<u8>) -> Result<Encrypted, String> {
    let label = "PRIVATE KEY".to_owned();
    let unreadable = || "something unreadable".to_owned();
    let (algorithm, data) = der::whole(&bytes).and_then(der::pair).ok_or_else(unreadable)?;
    let (oid, parameters) = der::pair(algorithm).ok_or_else(unreadable)?;
    let name = der::oid(oid);
    let keys = match name.as_str() {
        "1.2.840.113549.1.5.13" => {
            // This parser refuses what it does not support.
            return match EncryptedPrivateKeyInfoRef::try_from(&bytes[..]) {
                Ok(_) => Ok(Encrypted { label, how: Encryption::Pbes2, bytes }),
                Err(_) => Err(pbes2_names(parameters)),
            };
        }
        "1.2.840.113549.1.12.1.3" => 3,
        "1.2.840.113549.1.12.1.4" => 2,
        _ => return Err(cipher_name(&name)),
    };
    let (salt, rounds) = der::pair(parameters).ok_or_else(unreadable)?;
    let rounds = der::number(rounds).filter(|&rounds| rounds > 0).ok_or_else(unreadable)?;
    let how = Encryption::Pkcs12 { keys, salt: salt.to_vec(), rounds };
    Ok(Encrypted { label, how, bytes: data.to_vec() })
}

/// The names of PBES2's cipher and key derivation, one of which is unsupported.
fn pbes2_names(parameters: &[u8]) -> String {
    let named = |part: &[u8]| {
        der::pair(part)
            .map_or_else(|| "something".to_owned(), |(oid, _)| cipher_name(&der::oid(oid)))
    };
    match der::pair(parameters) {
        Some((derivation, cipher)) => {
            format!("{} with a key by {}", named(cipher), named(derivation))
        }
        None => "PBES2".to_owned(),
    }
}

/// OpenSSL's names of ciphers and key derivations.
fn cipher_name(oid: &str) -> String {
    let name = match oid {
        "1.2.840.113549.1.5.1" => "PBE-MD2-DES",
        "1.2.840.113549.1.5.3" => "PBE-MD5-DES",
        "1.2.840.113549.1.5.4" => "PBE-MD2-RC2-64",
        "1.2.840.113549.1.5.6" => "PBE-MD5-RC2-64",
        "1.2.840.113549.1.5.10" => "PBE-SHA1-DES",
        "1.2.840.113549.1.5.11" => "PBE-SHA1-RC2-64",
        "1.2.840.113549.1.5.12" => "PBKDF2",
        "1.2.840.113549.1.12.1.1" => "PBE-SHA1-RC4-128",
        "1.2.840.113549.1.12.1.2" => "PBE-SHA1-RC4-40",
        "1.2.840.113549.1.12.1.5" => "PBE-SHA1-RC2-128",
        "1.2.840.113549.1.12.1.6" => "PBE-SHA1-RC2-40",
        "1.2.840.113549.3.2" => "RC2-CBC",
        "1.2.840.113549.3.7" => "DES-EDE3-CBC",
        "1.3.14.3.2.7" => "DES-CBC",
        "1.2.392.200011.61.1.1.1.2" => "CAMELLIA-128-CBC",
        "1.2.392.200011.61.1.1.1.3" => "CAMELLIA-192-CBC",
        "1.2.392.200011.61.1.1.1.4" => "CAMELLIA-256-CBC",
        "1.2.410.200046.1.1.2" => "ARIA-128-CBC",
        "1.2.410.200046.1.1.12" => "ARIA-256-CBC",
        "1.2.156.10197.1.104.2" => "SM4-CBC",
        "2.16.840.1.101.3.4.1.2" => "AES-128-CBC",
        "2.16.840.1.101.3.4.1.22" => "AES-192-CBC",
        "2.16.840.1.101.3.4.1.42" => "AES-256-CBC",
        "1.3.6.1.4.1.11591.4.11" => "scrypt",
        other => return format!("algorithm {other}"),
    };
    name.to_owned()
}

impl Cipher {
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_uppercase().as_str() {
            "DES-CBC" => Self::Des,
            "DES-EDE3-CBC" => Self::TripleDes,
            "AES-128-CBC" => Self::Aes128,
            "AES-192-CBC" => Self::Aes192,
            "AES-256-CBC" => Self::Aes256,
            _ => return None,
        })
    }

    /// Length of the key in bytes.
    const fn key(self) -> usize {
        match self {
            Self::Des => 8,
            Self::Aes128 => 16,
            Self::TripleDes | Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }

    /// Length of the IV in bytes: one block.
    const fn iv(self) -> usize {
        match self {
            Self::Des | Self::TripleDes => 8,
            Self::Aes128 | Self::Aes192 | Self::Aes256 => 16,
        }
    }

    /// Decrypts; `None` if the padding is invalid.
    fn decrypt(self, key: &[u8], iv: &[u8], data: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        match self {
            Self::Des => decrypt::<Des>(key, iv, data),
            Self::TripleDes => decrypt::<TdesEde3>(key, iv, data),
            Self::Aes128 => decrypt::<Aes128>(key, iv, data),
            Self::Aes192 => decrypt::<Aes192>(key, iv, data),
            Self::Aes256 => decrypt::<Aes256>(key, iv, data),
        }
    }
}

fn decrypt<C: BlockCipherDecrypt + KeyInit>(
    key: &[u8],
    iv: &[u8],
    data: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let mut data = Zeroizing::new(data.to_vec());
    let cipher = Decryptor::<C>::new_from_slices(key, iv).ok()?;
    let length = cipher.decrypt_padded::<Pkcs7>(&mut data).ok()?.len();
    data.truncate(length);
    Some(data)
}

/// OpenSSL's EVP_BytesToKey with MD5 and one iteration.
fn bytes_to_key(passphrase: &[u8], salt: &[u8], length: usize) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(Vec::new());
    let mut last: Vec<u8> = Vec::new();
    while key.len() < length {
        let mut hash = Md5::new();
        hash.update(&last);
        hash.update(passphrase);
        hash.update(salt);
        last = hash.finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(length);
    key
}

/// Key derivation of PKCS #12 with SHA-1 (RFC 7292, appendix B.2): `id` 1 for a key, 2 for an IV.
fn pkcs12(passphrase: &str, salt: &[u8], rounds: u32, id: u8, length: usize) -> Zeroizing<Vec<u8>> {
    let wide = passphrase.encode_utf16().chain([0]).flat_map(u16::to_be_bytes);
    let wide: Zeroizing<Vec<u8>> = Zeroizing::new(wide.collect());
    let filled = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().copied().cycle().take(bytes.len().div_ceil(SHA1_BLOCK) * SHA1_BLOCK).collect()
    };
    let mut input = Zeroizing::new([filled(salt), filled(&wide)].concat());
    let mut key = Zeroizing::new(Vec::new());
    while key.len() < length {
        let first = Sha1::new().chain_update([id; SHA1_BLOCK]).chain_update(&input[..]);
        let mut hash = first.finalize();
        for _ in 1..rounds {
            hash = Sha1::digest(hash);
        }
        key.extend_from_slice(&hash);
        // Adds the hash and 1 to each block of the input.
        for block in input.chunks_mut(SHA1_BLOCK) {
            let mut carry = 1u16;
            for (at, byte) in block.iter_mut().enumerate().rev() {
                carry += u16::from(*byte) + u16::from(hash[at % SHA1_SIZE]);
                [_, *byte] = carry.to_be_bytes();
                carry >>= 8;
            }
        }
    }
    key.truncate(length);
    key
}

/// The subset of DER for the outer structure of encrypted keys.
mod der {
    /// The content of the single element in `bytes`.
    pub fn whole(bytes: &[u8]) -> Option<&[u8]> {
        let (content, rest) = element(bytes)?;
        rest.is_empty().then_some(content)
    }

    /// The contents of the first two elements.
    pub fn pair(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (first, rest) = element(bytes)?;
        Some((first, element(rest)?.0))
    }

    fn element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = match *bytes.get(1)? {
            short @ 0..0x80 => (usize::from(short), &bytes[2..]),
            long => {
                let count = usize::from(long & 0x7f);
                let digits = bytes.get(2..2 + count).filter(|_| (1..=4).contains(&count))?;
                let length = digits.iter().fold(0, |all, &digit| all << 8 | usize::from(digit));
                (length, &bytes[2 + count..])
            }
        };
        rest.split_at_checked(length)
    }

    pub fn number(content: &[u8]) -> Option<u32> {
        let digits = content.iter().skip_while(|&&digit| digit == 0);
        let small = digits.clone().count() <= 4;
        small.then(|| digits.fold(0, |all, &digit| all << 8 | u32::from(digit)))
    }

    /// An object identifier in dotted notation.
    pub fn oid(content: &[u8]) -> String {
        let mut numbers = Vec::new();
        let mut number: u64 = 0;
        for &byte in content.iter().take(64) {
            number = number << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                if numbers.is_empty() {
                    let first = (number / 40).min(2);
                    numbers.push(first);
                    number -= 40 * first;
                }
                numbers.push(number);
                number = 0;
            }
        }
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        words.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_identifiers_are_written_in_dots() {
        assert_eq!(
            der::oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1, 3]),
            "1.2.840.113549.1.12.1.3"
        );
        assert_eq!(der::oid(&[0x60, 0x86, 0x48, 1]), "2.16.840.1");
        assert_eq!(der::oid(&[]), "");
    }

    #[test]
    fn truncated_keys_are_refused_without_panic() {
        // A SEQUENCE of an algorithm (PBE-SHA1-3DES, salt, 2048 rounds) and eight bytes.
        let algorithm = [
            &[0x30, 28, 6, 10, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1, 3, 0x30, 14, 4, 8][..],
            &[1, 2, 3, 4, 5, 6, 7, 8, 2, 2, 8, 0],
        ]
        .concat();
        let whole = [&[0x30, 40][..], &algorithm, &[4, 8, 1, 2, 3, 4, 5, 6, 7, 8]].concat();
        assert!(matches!(
            of_pkcs8(whole.clone()),
            Ok(Encrypted { how: Encryption::Pkcs12 { keys: 3, rounds: 2048, .. }, .. })
        ));
        for end in 0..whole.len() {
            assert!(of_pkcs8(whole[..end].to_vec()).is_err(), "{end}");
        }
    }

    #[test]
    fn an_unsupported_encryption_is_named() {
        let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: CAMELLIA-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        assert_eq!(encryption(text).unwrap().unwrap_err(), "CAMELLIA-256-CBC");
        assert!(encryption("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END").is_none());
        assert!(encryption("nothing").is_none());
    }
}
