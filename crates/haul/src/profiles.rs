//! The built-in profiles.

use haul_engine::WindowProfile;

use crate::options::Options;
use crate::units::{Count, OrAuto, SizeIn, Switch};

/// The names of the built-in profiles.
pub(crate) const BUILT_IN_PROFILES: [&str; 3] = ["safe", "default", "aggressive"];

/// The built-in profile `name`, if there is one; `haul cp --help` describes them.
pub(crate) fn built_in(name: &str) -> Option<(WindowProfile, Options)> {
    let options = Options::default();
    match name {
        "safe" => Some((
            WindowProfile::Safe,
            Options {
                retries: Some(Count(10)),
                verify: Some(Switch(true)),
                fsync: Some(Switch(true)),
                ..options
            },
        )),
        "default" => Some((WindowProfile::Default, options)),
        "aggressive" => Some((
            WindowProfile::Aggressive,
            Options {
                files: Some(OrAuto(Some(Count(64)))),
                memory: Some(SizeIn(1 << 30)),
                ..options
            },
        )),
        _ => None,
    }
}
