//! Known-answer tests: results of other implementations for given secrets and keys. The scripts that
//! produced them are in `known/`: asyncssh for the algorithms that it has, Go's x/crypto/ssh for the rest.

use std::collections::{BTreeSet, HashMap};

use data_encoding::HEXLOWER;

use super::cipher::{Cipher, Material, Suite};
use super::kex::{Exchange, Exchanged};
use crate::ssh::choice::{CIPHERS_WITH_AES, KEX, MACS};

const EXCHANGES: &str = include_str!("known/exchanges.txt");
const HYBRIDS: &str = include_str!("known/mlkem.txt");
const PACKETS: &str = include_str!("known/packets.txt");

/// One block of `name value` lines; blank lines separate blocks.
struct Record(HashMap<&'static str, &'static str>);

impl Record {
    fn all(file: &'static str) -> impl Iterator<Item = Self> {
        let blocks = file.split("\n\n").filter(|block| !block.trim().is_empty());
        blocks.map(|block| {
            let lines = block.lines().filter(|line| !line.starts_with('#'));
            Self(lines.map(|line| line.split_once(' ').unwrap()).collect())
        })
    }

    fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn text(&self, field: &str) -> &'static str {
        self.0[field]
    }

    fn bytes(&self, field: &str) -> Vec<u8> {
        HEXLOWER.decode(self.text(field).as_bytes()).unwrap()
    }
}

/// Repeats every key exchange recorded in a file and compares the results; returns the methods' names.
fn exchanges(file: &'static str) -> BTreeSet<&'static str> {
    let mut records = Record::all(file);
    let common = records.next().unwrap();
    let session_id = common.bytes("session-id");
    let mut names = BTreeSet::new();
    for record in records {
        let name = record.text("name");
        names.insert(name);
        let exchange = Exchange::with_secret(name, &record.bytes("secret"));
        assert_eq!(exchange.ours, record.bytes("ours"), "{name}");
        let theirs = record.bytes("theirs");
        let shared = exchange.agree(&theirs).unwrap();
        assert_eq!(*shared, record.bytes("shared"), "{name}");
        let exchanged = Exchanged {
            our_version: common.text("client-version"),
            their_version: common.text("server-version"),
            our_offer: &common.bytes("client-offer"),
            their_offer: &common.bytes("server-offer"),
            host_key: &common.bytes("host-key"),
            theirs: &theirs,
        };
        let hash = exchange.hash(&exchanged, &shared);
        assert_eq!(hash, record.bytes("hash"), "{name}");
        for letters in [*b"ACE", *b"BDF"] {
            let lengths = Material { iv: 12, key: 64, mac: 100 };
            let material = exchange.material(&lengths, letters, &shared, &hash, &session_id);
            for (letter, key) in letters.into_iter().zip([material.iv, material.key, material.mac])
            {
                let expected = record.bytes(&format!("key-{}", char::from(letter)));
                assert_eq!(*key, expected[..key.len()], "{name}, {}", char::from(letter));
            }
        }
    }
    names
}

#[test]
fn every_key_exchange_agrees_with_another_implementation() {
    let mut names = exchanges(EXCHANGES);
    names.append(&mut exchanges(HYBRIDS));
    assert_eq!(names, BTreeSet::from_iter(KEX.select(None).unwrap()), "a method is not covered");
}

#[test]
fn every_cipher_and_mac_agrees_with_another_implementation() {
    let mut suites = BTreeSet::new();
    let mut both = None;
    for record in Record::all(PACKETS) {
        if record.has("cipher") {
            let suite = Suite { cipher: record.text("cipher"), mac: record.text("mac") };
            suites.insert((suite.cipher, suite.mac));
            let [iv, key, mac] = ["iv", "key", "mac-key"].map(|field| record.bytes(field).into());
            let material = Material { iv, key, mac };
            let cipher = || Cipher::new(suite, &material).unwrap();
            both = Some((suite, cipher(), cipher()));
            continue;
        }
        let (suite, sealing, opening) = both.as_mut().unwrap();
        let number = record.text("number").parse().unwrap();
        let (plain, sealed) = (record.bytes("plain"), record.bytes("sealed"));
        let mut packet = plain.clone();
        sealing.seal(number, &mut packet, 0).unwrap();
        assert_eq!(packet, sealed, "{suite:?}, packet {number}");
        let head = opening.head();
        let length = opening.length(number, &mut packet[..head]).unwrap();
        assert_eq!(length.to_be_bytes(), plain[..4], "{suite:?}, packet {number}");
        opening.open(number, &mut packet).unwrap();
        let range = 4..plain.len();
        assert_eq!(packet[range.clone()], plain[range], "{suite:?}, packet {number}");
    }
    let (ciphers, macs) = (CIPHERS_WITH_AES.select(None).unwrap(), MACS.select(Some("*")).unwrap());
    let expected = ciphers.iter().flat_map(|&cipher| match Suite::is_aead(cipher) {
        true => vec![(cipher, "none")],
        false => macs.iter().map(|&mac| (cipher, mac)).collect(),
    });
    assert_eq!(suites, expected.collect(), "a suite is not covered");
}
