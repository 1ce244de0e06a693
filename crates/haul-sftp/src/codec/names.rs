//! Names in a listing, and packets of them.
//!
//! Some servers list a whole directory in one packet, which is too long to be decoded at once. It stays in the pieces
//! in which it arrived, and names are decoded from its front, so that a directory of a million entries needs no more
//! memory than the packet.

use bytes::Bytes;
use haul_storage::Block;

use super::wire::{Fields, Packet};
use super::{Attrs, CodecError, kind};

/// Bytes that are joined to decode names from; doubled for a longer name.
const CHUNK: usize = 256 << 10;

/// An entry in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name, or a path.
    pub name: Bytes,
    /// A line in the format of `ls -l`.
    pub long: Bytes,
    /// The attributes.
    pub attrs: Attrs,
}

impl Name {
    /// Decodes the next name.
    pub(super) fn decode(fields: &mut Fields) -> Result<Self, CodecError> {
        Ok(Self {
            name: fields.string("name")?,
            long: fields.string("long name")?,
            attrs: Attrs::decode(fields)?,
        })
    }
}

/// Names that are decoded from a packet one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    left: u32,
    front: Bytes,
    rest: Block,
}

impl Names {
    /// The names after the id of a packet.
    ///
    /// # Errors
    /// If the packet is too short for its count.
    pub fn decode(mut body: Block) -> Result<Self, CodecError> {
        let rest = body.split_off(4);
        let mut fields = Fields::new(kind::NAME, body.into_bytes());
        let left = fields.u32("count")?;
        // Each has at least twelve bytes: two lengths and the flags of its attributes.
        if left as usize > rest.len() / 12 {
            return Err(fields.invalid("count"));
        }
        Ok(Self { left, front: Bytes::new(), rest })
    }

    /// Decodes up to `most` names; none after the last.
    ///
    /// # Errors
    /// If bytes are not names, or follow the last one.
    pub fn take(&mut self, most: usize) -> Result<Vec<Name>, CodecError> {
        let mut names = Vec::new();
        while self.left > 0 && names.len() < most {
            let mut fields = Fields::new(kind::NAME, self.front.clone());
            match Name::decode(&mut fields) {
                Ok(name) => {
                    names.push(name);
                    self.front = fields.rest();
                    self.left -= 1;
                }
                Err(CodecError::Truncated { .. }) if !self.rest.is_empty() => self.refill(),
                Err(error) => return Err(error),
            }
        }
        if self.left == 0 && (!self.front.is_empty() || !self.rest.is_empty()) {
            let bytes = self.front.len() + self.rest.len();
            return Err(CodecError::Trailing { kind: kind::NAME, bytes });
        }
        Ok(names)
    }

    /// Encodes the packet with the names that were not taken.
    pub(super) fn encode(self, head: Packet) -> Bytes {
        head.u32(self.left).raw(&self.front).raw(&self.rest.into_bytes()).done()
    }

    /// Bytes that are not decoded yet.
    pub fn held(&self) -> usize {
        self.front.len() + self.rest.len()
    }

    /// Appends to the front at least as many bytes as it has.
    fn refill(&mut self) {
        let after = self.rest.split_off(CHUNK.max(self.front.len()));
        let mut front = Block::from(std::mem::take(&mut self.front));
        front.append(std::mem::replace(&mut self.rest, after));
        self.front = front.into_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Frame, Response};

    fn list(count: u32, name_length: usize) -> Vec<Name> {
        let name = |number: u32| Name {
            name: format!("{number}{}", "x".repeat(name_length)).into(),
            long: "-rw-r--r-- 1 o g 0 Nov 22 13:50".into(),
            attrs: Attrs {
                size: Some(number.into()),
                extended: vec![("acl".into(), "x".repeat(number as usize % 7).into())],
                ..Attrs::default()
            },
        };
        (0..count).map(name).collect()
    }

    /// The body of a packet after its id, in pieces of `piece` bytes.
    fn body(names: &[Name], piece: usize) -> Block {
        let packet = Response::Names(names.to_vec()).encode(1).slice(9..);
        let mut block = Block::new();
        packet.chunks(piece).for_each(|piece| block.push(Bytes::copy_from_slice(piece)));
        block
    }

    #[test]
    fn names_are_decoded_in_order_from_pieces_of_any_length() {
        // Somewhere in these, the front ends between the number of extended attributes and the first.
        let lengths = (200..300).map(|length| (1300, length, 32_768));
        let others = [(0, 1, 7), (1, 1, 1), (5000, 200, 32_768), (3, 400_000, 1000)];
        for (count, length, piece) in others.into_iter().chain(lengths) {
            let wanted = list(count, length);
            let mut names = Names::decode(body(&wanted, piece)).unwrap();
            let mut found = Vec::new();
            loop {
                let some = names.take(1000).unwrap();
                if some.is_empty() {
                    break;
                }
                assert!(some.len() <= 1000);
                found.extend(some);
            }
            assert!(found == wanted, "{count} names of {length}");
        }
    }

    #[test]
    fn only_a_long_packet_is_decoded_lazily() {
        let whole =
            |names: &[Name]| Block::from(Response::Names(names.to_vec()).encode(7).slice(5..));
        let frame = |names: &[Name]| Frame { kind: kind::NAME, body: whole(names) };
        let (short, long) = (list(100, 20), list(5000, 200));
        let read = |names: &[Name]| Response::decode(frame(names)).unwrap();
        assert_eq!(read(&short), (7, Response::Names(short.clone())));
        let (7, many @ Response::ManyNames(_)) = read(&long) else { panic!("not many names") };
        assert_eq!(many.encode(7), Response::Names(long.clone()).encode(7));
        let Response::ManyNames(mut many) = many else { unreachable!() };
        assert_eq!(many.take(usize::MAX).unwrap(), long);
    }

    #[test]
    fn a_packet_of_the_wrong_length_is_refused() {
        let whole = body(&list(100, 10), 50);
        let mut longer = whole.clone();
        longer.push(Bytes::from_static(&[0]));
        let trailing = CodecError::Trailing { kind: kind::NAME, bytes: 1 };
        assert_eq!(Names::decode(longer).unwrap().take(200), Err(trailing));
        let mut shorter = whole.clone();
        shorter.truncate(whole.len() - 1);
        assert!(Names::decode(shorter).unwrap().take(200).is_err());
        let mut boast = Block::from(Bytes::from_static(&[0xff; 4]));
        boast.append(whole);
        assert!(Names::decode(boast).is_err());
    }
}
