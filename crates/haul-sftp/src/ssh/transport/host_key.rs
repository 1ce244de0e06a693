//! The host key that a server presents in a key exchange: parses it and verifies its signature.

use russh::keys::signature::Verifier;
use russh::keys::ssh_encoding::Decode;
use russh::keys::ssh_key::Signature;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, HashAlg, PublicKey};

use super::end::{End, violation};
use super::wire::Reader;
use crate::ssh::choice::CERTIFICATE;
use crate::ssh::key::{HostCertificate, HostKey};

/// The violation: a certificate's authority must be a plain key, not a certificate again.
const FORBIDDEN: &str = "a certificate signed by a certificate";

/// Parses a key presented for an algorithm and verifies its signature over the exchange hash.
///
/// # Errors
/// It is invalid or of another type; its signature is wrong.
pub fn verified(
    algorithm: &str,
    blob: &[u8],
    signature: &[u8],
    hash: &[u8],
) -> Result<HostKey, End> {
    let signs = algorithm.strip_suffix(CERTIFICATE);
    let certified = signs.is_some();
    let signs = signs.unwrap_or(algorithm);
    let key_type = if signs.starts_with("rsa-sha2-") { "ssh-rsa" } else { signs };
    let shown = Reader::new(blob).text()?;
    let expected = if certified { format!("{key_type}{CERTIFICATE}") } else { key_type.to_owned() };
    if shown != expected {
        return Err(violation(format!(
            "a host key of type {shown} where {expected} was negotiated"
        )));
    }
    let (key, certificate) = if certified {
        let certificate = certificate(blob)?;
        let key = PublicKey::new(certificate.public_key().clone(), "");
        (key, Some(describe(&certificate)?))
    } else {
        (PublicKey::from_bytes(blob).map_err(|error| unreadable(&error))?, None)
    };
    verify(key.key_data(), signs, signature, hash)?;
    Ok(HostKey {
        key_type: key_type.to_owned(),
        blob: key.to_bytes().map_err(|error| unreadable(&error))?,
        rsa_bits: rsa_bits(key.key_data()),
        certificate,
    })
}

fn verify(key: &KeyData, signs: &str, signature: &[u8], hash: &[u8]) -> Result<(), End> {
    // The server has to sign with the agreed algorithm, not with a weaker one.
    if Reader::new(signature).string()? != signs.as_bytes() {
        return Err(End::WrongSignature);
    }
    let mut reader = signature;
    let signature = Signature::decode(&mut reader).map_err(|_| End::WrongSignature)?;
    key.verify(hash, &signature).map_err(|_| End::WrongSignature)
}

/// Parses a certificate. ssh-key parses nested certificates to any depth, so nesting is refused first.
fn certificate(blob: &[u8]) -> Result<Certificate, End> {
    let mut reader = Reader::new(blob);
    let kind = reader.text()?;
    // The nonce, and the key's own fields.
    let fields = if kind.starts_with("ssh-ed25519") { 2 } else { 3 };
    for _ in 0..fields {
        reader.string()?;
    }
    // Serial number, kind of certificate, name; principals, times, options, extensions, reserved.
    reader.take(8 + 4)?;
    reader.string()?;
    reader.string()?;
    reader.take(16)?;
    for _ in 0..3 {
        reader.string()?;
    }
    let authority = reader.string()?;
    if Reader::new(authority).text()?.contains("-cert-v0") {
        return Err(violation(FORBIDDEN));
    }
    Certificate::from_bytes(blob).map_err(|error| unreadable(&error))
}

fn describe(certificate: &Certificate) -> Result<HostCertificate, End> {
    let authority = PublicKey::new(certificate.signature_key().clone(), "");
    // With a time within the period this checks the signature only; `HostKeyJudge` checks the clock.
    let fingerprint = authority.fingerprint(HashAlg::Sha256);
    let signature = certificate.validate_at(certificate.valid_after(), [&fingerprint]);
    Ok(HostCertificate {
        authority: authority.to_bytes().map_err(|error| unreadable(&error))?,
        authority_rsa_bits: rsa_bits(authority.key_data()),
        signature_algorithm: certificate.signature().algorithm().as_str().to_owned(),
        signature_valid: signature.is_ok(),
        for_host: certificate.cert_type().is_host(),
        principals: certificate.valid_principals().to_vec(),
        valid_after: certificate.valid_after(),
        valid_before: certificate.valid_before(),
        critical_options: certificate.critical_options().iter().next().is_some(),
        key_id: certificate.key_id().to_owned(),
    })
}

/// Bits of an RSA modulus.
fn rsa_bits(key: &KeyData) -> Option<u32> {
    key.rsa().map(|key| key.key_size())
}

fn unreadable(error: &russh::keys::ssh_key::Error) -> End {
    violation(format!("a host key that cannot be read: {error}"))
}
