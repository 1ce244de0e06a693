//! The engine with storages in memory: one program, so that it is built and linked once.

mod every_fault;
mod full_link;
mod support;
mod transfer;
