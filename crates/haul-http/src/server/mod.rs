//! `haul serve dav`.
