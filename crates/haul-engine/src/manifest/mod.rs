//! Manifests: lists of digests as `sha256sum` and `b3sum` write and check them.
