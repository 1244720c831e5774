//! Outer form of chitchat's messages, checked before decoding.
//!
//! A message consists of a magic number (2 bytes), version, type, and one or two streams of blocks (`type u8 | length
//! u16 little endian | bytes`, ended by type 0). For a SYN, the cluster's name follows. A compressed block of a dozen
//! bytes may unpack to 64 KiB, so a message with thousands of blocks would unpack to hundreds of megabytes. The check
//! admits only as many blocks as a correct member ever needs. A message of another form never reaches chitchat, which
//! would log it.

/// Wire version of all members.
const VERSION: u8 = 1;
const SYN: u8 = 0;
const SYN_ACK: u8 = 1;
const ACK: u8 = 2;
/// Maximum number of blocks of a message. A correct block unpacks to at most 16 KiB: 1 MiB in total, twice the size of
/// a full cell's keys. A hostile block unpacks to at most 64 KiB: 4 MiB in total.
const MAX_BLOCKS: u32 = 64;

/// Whether `bytes` may be passed to chitchat. A `BadCluster`, the codec's marker, may not.
pub(super) fn is_acceptable(magic: [u8; 2], bytes: &[u8]) -> bool {
    parse_frame(magic, bytes).is_some()
}

fn parse_frame(magic: [u8; 2], bytes: &[u8]) -> Option<()> {
    let (&[m0, m1, VERSION, kind], rest) = bytes.split_first_chunk::<4>()? else {
        return None;
    };
    if [m0, m1] != magic {
        return None;
    }
    let mut blocks = 0;
    let rest = match kind {
        SYN => {
            let (length, name) = skip_stream(rest, &mut blocks)?.split_first_chunk::<2>()?;
            name.get(usize::from(u16::from_le_bytes(*length))..)?
        }
        SYN_ACK => skip_stream(skip_stream(rest, &mut blocks)?, &mut blocks)?,
        ACK => skip_stream(rest, &mut blocks)?,
        _ => return None,
    };
    rest.is_empty().then_some(())
}

/// Returns the bytes after a stream of blocks; `None` if the stream is malformed or has too many blocks.
fn skip_stream<'a>(mut bytes: &'a [u8], blocks: &mut u32) -> Option<&'a [u8]> {
    loop {
        let (&kind, rest) = bytes.split_first()?;
        if kind == 0 {
            return Some(rest);
        }
        *blocks += 1;
        if kind > 2 || *blocks > MAX_BLOCKS {
            return None;
        }
        let (length, rest) = rest.split_first_chunk::<2>()?;
        bytes = rest.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 2] = [0x53, 0xb0];

    fn message(kind: u8, rest: &[&[u8]]) -> Vec<u8> {
        [&[MAGIC[0], MAGIC[1], 1, kind], rest.concat().as_slice()].concat()
    }

    #[test]
    fn honest_forms_are_accepted_and_others_are_not() {
        let block: &[u8] = &[1, 3, 0, 7, 7, 7];
        let (end, name): (&[u8], &[u8]) = (&[0], &[2, 0, b'c', b'0']);
        let good = [
            message(SYN, &[end, name]),
            message(SYN, &[block, block, end, name]),
            message(SYN_ACK, &[block, end, block, end]),
            message(SYN_ACK, &[end, end]),
            message(ACK, &[block, end]),
        ];
        for bytes in &good {
            assert!(is_acceptable(MAGIC, bytes), "{bytes:?}");
            assert!(!is_acceptable([0, 0], bytes), "another magic number");
            for cut in 0..bytes.len() {
                assert!(
                    !is_acceptable(MAGIC, &bytes[..cut]),
                    "{bytes:?} cut at {cut}"
                );
            }
            assert!(!is_acceptable(MAGIC, &[bytes.as_slice(), &[0]].concat()));
            let mut other = bytes.clone();
            other[2] = 0;
            assert!(!is_acceptable(MAGIC, &other), "another version");
        }
        assert!(!is_acceptable(MAGIC, &message(3, &[])), "the marker");
        assert!(!is_acceptable(MAGIC, &message(255, &[end])));
        assert!(
            !is_acceptable(MAGIC, &message(ACK, &[&[3, 0, 0], end])),
            "no such block"
        );
    }

    #[test]
    fn a_message_that_unpacks_to_too_much_is_refused() {
        let block: &[u8] = &[1, 1, 0, 7];
        let of = |count: usize| message(ACK, &[block.repeat(count).as_slice(), &[0]]);
        assert!(is_acceptable(MAGIC, &of(64)));
        assert!(!is_acceptable(MAGIC, &of(65)));
        let both = message(SYN_ACK, &[&block.repeat(40), &[0], &block.repeat(40), &[0]]);
        assert!(
            !is_acceptable(MAGIC, &both),
            "counted over the whole message"
        );
    }
}
