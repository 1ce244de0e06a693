//! One range read in parts, which are all requested at once.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use futures_util::{StreamExt as _, stream};
use haul_storage::{Block, BlockStream, Range, ReadAt, Result};

/// A part of the range.
struct Part {
    blocks: BlockStream,
    /// What has arrived and was not passed on yet.
    arrived: VecDeque<Result<Block>>,
    /// Bytes that were not passed on yet.
    left: u64,
    has_ended: bool,
}

impl Part {
    fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.has_ended {
            match self.blocks.poll_next_unpin(cx) {
                Poll::Ready(Some(block)) => self.arrived.push_back(block),
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending => return,
            }
        }
    }
}

/// Reads a range in parts of `part` bytes. Blocks of the first incomplete part are passed on as they arrive. Those of
/// later parts wait in memory, so the range must be short.
pub(super) fn spread(reader: &dyn ReadAt, range: Range, part: u64) -> BlockStream {
    if range.len() <= part {
        return reader.read_at(range);
    }
    let starts = (range.start()..range.end()).step_by(usize::try_from(part).unwrap_or(usize::MAX));
    let parts = starts.map(|start| Range::between(start, range.end().min(start + part)));
    joined(parts.map(|part| (part.len(), reader.read_at(part))))
}

/// The blocks of consecutive parts, up to the end of the first part that is shorter than requested: the file ended
/// there. If the file has grown since, later parts have bytes, but they do not continue that part.
fn joined(parts: impl Iterator<Item = (u64, BlockStream)>) -> BlockStream {
    let begin = |(left, blocks)| Part { blocks, arrived: VecDeque::new(), left, has_ended: false };
    let mut parts: VecDeque<Part> = parts.map(begin).collect();
    let next = move |cx: &mut Context<'_>| {
        parts.iter_mut().for_each(|part| part.poll(cx));
        while let Some(first) = parts.front_mut() {
            if let Some(block) = first.arrived.pop_front() {
                let length = block.as_ref().map_or(0, |block| block.len() as u64);
                first.left = first.left.saturating_sub(length);
                return Poll::Ready(Some(block));
            }
            if !first.has_ended {
                return Poll::Pending;
            }
            match first.left {
                0 => drop(parts.pop_front()),
                _ => parts.clear(),
            }
        }
        Poll::Ready(None)
    };
    stream::poll_fn(next).boxed()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::*;

    fn block(bytes: &'static [u8]) -> Result<Block> {
        Ok(Block::from(Bytes::from_static(bytes)))
    }

    fn part(blocks: &[&'static [u8]]) -> BlockStream {
        stream::iter(blocks.iter().map(|bytes| block(bytes)).collect::<Vec<_>>()).boxed()
    }

    async fn contents(parts: Vec<BlockStream>) -> Vec<u8> {
        let blocks = joined(parts.into_iter().map(|part| (3, part)));
        let blocks = blocks.map(|block| block.unwrap().into_bytes());
        blocks.collect::<Vec<_>>().await.concat()
    }

    #[tokio::test]
    async fn parts_are_joined_in_order() {
        let parts = vec![part(&[b"ab", b"c"]), part(&[b"def"]), part(&[b"g"])];
        assert_eq!(contents(parts).await, b"abcdefg");
    }

    #[tokio::test]
    async fn parts_behind_a_short_one_are_not_joined_to_it() {
        assert_eq!(
            contents(vec![part(&[b"abc"]), part(&[b"de"]), part(&[b"ghi"])]).await,
            b"abcde"
        );
    }

    /// Otherwise a slow path looks dead, and a reader that needs only the first bytes waits for all of them.
    #[tokio::test]
    async fn blocks_of_the_first_part_are_passed_on_as_they_arrive() {
        let slow = part(&[b"a"]).chain(stream::pending()).boxed();
        let mut blocks = joined([(3, slow), (3, part(&[b"def"]))].into_iter());
        assert_eq!(blocks.next().await.unwrap().unwrap().into_bytes(), "a");
        assert!(blocks.next().now_or_never().is_none());
    }
}
