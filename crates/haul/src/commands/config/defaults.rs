//! The built-in defaults as `haul config show` prints them. Tests compare most of them with the actual ones.

/// The default of an option; `None` if there is nothing to show.
pub(super) fn default_of(option: &str) -> Option<&'static str> {
    DEFAULTS.iter().find(|(name, _)| *name == option).map(|(_, value)| *value)
}

/// The value that a built-in profile sets for an option.
pub(super) fn of_profile(name: &str, option: &str) -> Option<&'static str> {
    let (_, values) = PROFILES.iter().find(|(profile, _)| *profile == name)?;
    values.iter().find(|(name, _)| *name == option).map(|(_, value)| *value)
}

type Values = &'static [(&'static str, &'static str)];

const DEFAULTS: Values = &[
    ("profile", "default"),
    ("lanes", "auto"),
    ("window", "auto"),
    ("chunk", "auto"),
    ("files", "auto"),
    ("block-size", "256K"),
    ("queue-size", "32"),
    ("memory", "256M"),
    ("bwlimit", "no limit"),
    ("order", "as listed"),
    ("overwrite", "different"),
    ("preserve", "mode,times,links"),
    ("resume", "yes"),
    ("manifest", "no"),
    ("digest", "sha256 with manifest, blake3 with verify"),
    ("verify", "no"),
    ("fsync", "no"),
    ("retries", "5"),
    ("min-free", "no limit"),
    ("no-space-check", "no"),
    ("on-done", "nothing"),
    ("bell", "no"),
    ("progress", "total"),
    ("split", "auto"),
];

const PROFILES: &[(&str, Values)] = &[
    ("safe", &[("retries", "10"), ("verify", "yes"), ("fsync", "yes")]),
    ("default", &[]),
    ("aggressive", &[("files", "64"), ("memory", "1G")]),
];

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::config::{Config, option_names};
    use crate::profiles::{BUILT_IN_PROFILES, built_in};
    use crate::settings::resolve;

    fn text(values: Values) -> String {
        let line = |(name, value): &(&str, &str)| format!("{name} = \"{value}\"\n");
        format!("[defaults]\n{}", values.iter().map(line).collect::<String>())
    }

    #[test]
    fn a_configuration_with_all_defaults_changes_nothing() {
        let resolved = |config: &str| {
            let Command::Cp(args) = Cli::parse_from(["haul", "cp", "a", "b"]).command else {
                panic!("the command is not cp")
            };
            let resolved = resolve(&args.transfer, &Config::of(config)).unwrap();
            let mut engine = resolved.engine;
            // Its debug output contains an address.
            engine.filter = haul_engine::Settings::default().filter;
            let (manifest, split) = (resolved.manifest, resolved.split);
            format!("{engine:?} {manifest:?} {split:?} {:?} {:?}", resolved.show, resolved.done)
        };
        // The excluded ones are shown in words, which the configuration does not accept or would misread.
        let values: Vec<_> = DEFAULTS
            .iter()
            .filter(|(name, _)| {
                !["bwlimit", "digest", "manifest", "order", "min-free", "on-done"].contains(name)
            })
            .copied()
            .collect();
        assert_eq!(resolved(&text(values.leak())), resolved(""));
        for name in option_names() {
            let is_list = name == "include" || name == "exclude";
            assert!(is_list || default_of(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_shown_values_of_built_in_profiles_are_the_actual_ones() {
        for (name, values) in PROFILES {
            let (_, options) = built_in(name).unwrap();
            let shown = Config::of(&text(values)).defaults;
            assert_eq!(format!("{options:?}"), format!("{shown:?}"), "{name}");
        }
        assert_eq!(BUILT_IN_PROFILES, ["safe", "default", "aggressive"]);
        assert_eq!(PROFILES.len(), BUILT_IN_PROFILES.len());
    }
}
