//! The engine with storages in memory: one test binary, so that it is built and linked once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod attributes;
mod digests;
mod every_fault;
mod expected;
mod fan;
mod full_link;
mod links;
mod long_reads;
mod mirrors;
mod moved;
mod put_together;
mod rate;
mod shared_link;
mod support;
mod times;
mod transfer;
mod tree;
mod twins;
