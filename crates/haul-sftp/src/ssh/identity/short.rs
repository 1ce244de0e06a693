//! ECDSA keys in OpenSSH's format whose private scalar has fewer bytes than the curve.
//!
//! The format stores the scalar as an `mpint`, without leading zero bytes. One P-256 key in 512 has 31 bytes, which
//! ssh-key 0.7.0-rc.11 refuses ("length invalid").

use data_encoding::BASE64_MIME;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::{EcdsaKeypair, EcdsaPrivateKey, KeypairData};
use russh::keys::ssh_key::public::EcdsaPublicKey;
use zeroize::Zeroizing;

/// Bytes of a scalar of P-256.
const SCALAR: usize = 32;

/// Reads such a key, with its passphrase if it is encrypted; `None` if it is not one.
pub fn read(text: &str, passphrase: Option<&str>) -> Option<PrivateKey> {
    let private = match passphrase {
        Some(passphrase) => decrypted(text, passphrase)?,
        None => plain(text)?,
    };
    let mut rest = &private[..];
    let check = (number(&mut rest)?, number(&mut rest)?);
    if check.0 != check.1 || string(&mut rest)? != b"ecdsa-sha2-nistp256" {
        return None;
    }
    let (_curve, point, scalar) = (string(&mut rest)?, string(&mut rest)?, string(&mut rest)?);
    let comment = String::from_utf8_lossy(string(&mut rest)?).into_owned();
    let mut bytes = [0; SCALAR];
    bytes.get_mut(SCALAR.checked_sub(scalar.len())?..)?.copy_from_slice(scalar);
    let EcdsaPublicKey::NistP256(public) = EcdsaPublicKey::from_sec1_bytes(point).ok()? else {
        return None;
    };
    let pair = EcdsaKeypair::NistP256 { public, private: EcdsaPrivateKey::from(bytes) };
    PrivateKey::new(KeypairData::Ecdsa(pair), comment).ok()
}

/// The private section of a key that is not encrypted (OpenSSH's PROTOCOL.key).
fn plain(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (_, body) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----")?;
    let (body, _) = body.split_once("-----END")?;
    let bytes = Zeroizing::new(BASE64_MIME.decode(body.trim().as_bytes()).ok()?);
    let mut rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let is_plain = string(&mut rest)? == b"none";
    let (_kdf, _options, keys) = (string(&mut rest)?, string(&mut rest)?, number(&mut rest)?);
    let (_public, private) = (string(&mut rest)?, string(&mut rest)?);
    (is_plain && keys == 1).then(|| Zeroizing::new(private.to_vec()))
}

fn decrypted(text: &str, passphrase: &str) -> Option<Zeroizing<Vec<u8>>> {
    let key = PrivateKey::from_openssh(text).ok()?;
    let (secret, iv) = key.kdf().derive_key_and_iv(key.cipher(), passphrase).ok()?;
    let mut bytes = Zeroizing::new(key.key_data().encrypted()?.to_vec());
    key.cipher().decrypt(&secret, &iv, &mut bytes, None).ok()?;
    Some(bytes)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (string, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `ssh-keygen -t ecdsa -b 256`, the 1737th try.
    const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAaAAAABNlY2RzYS
1zaGEyLW5pc3RwMjU2AAAACG5pc3RwMjU2AAAAQQRFT2Ux4d9Du94AlViU9bkofi2L2f93
5X3PjwljcQb0s5lk2zucfp4uxVGhkR327f7t1Ug5KyXvQs7sJ519Qi7zAAAAoMNLMILDSz
CCAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEVPZTHh30O73gCV
WJT1uSh+LYvZ/3flfc+PCWNxBvSzmWTbO5x+ni7FUaGRHfbt/u3VSDkrJe9CzuwnnX1CLv
MAAAAfHfXwMx30P/kLDBeqljX3D4qzg0yti8wVjVK/k/71lgAAAAVzaG9ydAECAwQ=
-----END OPENSSH PRIVATE KEY-----
";
    const PUBLIC: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEVPZTHh30O73gCV\
                          WJT1uSh+LYvZ/3flfc+PCWNxBvSzmWTbO5x+ni7FUaGRHfbt/u3VSDkrJe9CzuwnnX1CLvM= short";

    #[test]
    fn a_short_scalar_is_padded() {
        let key = read(KEY, None).unwrap();
        assert_eq!(key.public_key().to_openssh().unwrap(), PUBLIC);
        let KeypairData::Ecdsa(pair) = key.key_data() else { panic!("no ECDSA key") };
        assert_eq!((pair.private_key_bytes().len(), pair.private_key_bytes()[0]), (SCALAR, 0));
    }

    #[test]
    fn any_damage_is_refused() {
        for cut in (40..KEY.len()).step_by(7) {
            assert!(read(&KEY[..cut], None).is_none_or(|key| key.comment().as_bytes() == b"short"));
        }
        assert!(read(KEY, Some("open-sesame")).is_none(), "it is not encrypted");
    }
}
