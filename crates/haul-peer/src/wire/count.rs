//! Counts the items of an encoded message before it is decoded: an empty item has two bytes on the wire,
//! and up to a few hundred in memory.
//!
//! Deeper items (extended attributes, the steps of ranges) are not counted: the length of a message limits them. An
//! empty attribute, the worst of them, takes 64 bytes in memory, so a message of 256 KiB takes 8 MiB until
//! [`super::convert`] refuses it.

use super::error::WireError;

/// The number of fields in the bodies of `message`, one level below its own fields.
///
/// # Errors
/// If the outermost level is not protobuf, or has groups, which this protocol does not use. Deeper levels are
/// left to the decoder, which skips unknown groups: in a body, their delimiters and their fields are counted, too.
pub(super) fn items(message: &[u8]) -> Result<usize, WireError> {
    let mut rest = message;
    let mut count = 0;
    while !rest.is_empty() {
        let mut body = match next_field(&mut rest) {
            Some(Field::Delimited(body)) => body,
            Some(Field::Number) => &[],
            Some(Field::Group) | None => {
                return Err(WireError::Malformed(
                    "a field is cut or of an unknown type".to_owned(),
                ));
            }
        };
        while !body.is_empty() && next_field(&mut body).is_some() {
            count += 1;
        }
    }
    Ok(count)
}

/// A field, without its key.
enum Field<'a> {
    /// A number of any length.
    Number,
    /// The bytes of a string or a message.
    Delimited(&'a [u8]),
    /// The beginning or the end of a group. The fields between follow.
    Group,
}

/// Removes the next field from the front. `None` if it is cut or of an unknown type.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let length = match varint(rest)? & 7 {
        0 => {
            varint(rest)?;
            return Some(Field::Number);
        }
        1 => 8,
        5 => 4,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (field, after) = rest.split_at_checked(length)?;
            *rest = after;
            return Some(Field::Delimited(field));
        }
        3 | 4 => return Some(Field::Group),
        _ => return None,
    };
    *rest = rest.get(length..)?;
    Some(Field::Number)
}

/// Removes a number of at most ten bytes from the front.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_items_of_all_bodies_are_counted() {
        assert_eq!(items(&[]), Ok(0));
        // Field 1 is a number; field 2 has a number, an empty and a non-empty item; field 3 has one item.
        let message = [8, 7, 18, 7, 8, 1, 18, 0, 18, 1, 5, 26, 2, 10, 0];
        assert_eq!(items(&message), Ok(4));
        // A group that holds a number and another group, between two items.
        assert_eq!(items(&[18, 10, 10, 0, 123, 8, 1, 123, 124, 124, 10, 0]), Ok(7));
    }

    #[test]
    fn a_cut_field_and_a_group_are_errors() {
        for message in [&[18, 5, 1][..], &[8], &[8, 0xff], &[11], &[9, 1, 2], &[0xff; 11]] {
            assert!(matches!(items(message), Err(WireError::Malformed(_))), "{message:?}");
        }
    }
}
