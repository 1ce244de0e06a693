//! Checks files against a manifest.
