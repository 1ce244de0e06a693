//! The conformance kit on the in-memory backend, in every variant of its capabilities.
