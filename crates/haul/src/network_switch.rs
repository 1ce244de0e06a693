//! Whether haul uses a part of the network that can be turned off: the local network, or the router. The first of these
//! that is set decides:
//!
//! ```text
//! --no-lan           → HAUL_LAN          → lan in [defaults]          → yes
//! --no-port-mapping  → HAUL_PORT_MAPPING → port-mapping in [defaults] → yes
//! ```

use std::env;
use std::ffi::OsStr;

use crate::config::Config;
use crate::units::Switch;

/// The variables of the environment.
pub(crate) const LAN: &str = "HAUL_LAN";
pub(crate) const PORT_MAPPING: &str = "HAUL_PORT_MAPPING";

/// Whether haul announces shares on the local network and looks for machines on it; `no_lan` is the option.
pub(crate) fn uses_lan(no_lan: bool, config: &Config) -> bool {
    is_on(no_lan, LAN, config.lan)
}

/// Whether haul requests port mappings from the router; `no_port_mapping` is the option.
pub(crate) fn maps_ports(no_port_mapping: bool, config: &Config) -> bool {
    is_on(no_port_mapping, PORT_MAPPING, config.port_mapping)
}

fn is_on(no: bool, variable: &str, configured: Option<bool>) -> bool {
    let variable = env::var_os(variable).filter(|value| !value.is_empty());
    decided(no, variable.as_deref(), configured)
}

fn decided(no: bool, variable: Option<&OsStr>, configured: Option<bool>) -> bool {
    let is_wanted = match variable {
        // The variable is usually set to turn something off, so a misspelt value does that.
        Some(text) => {
            let parsed = text.to_str().and_then(|text| text.parse::<Switch>().ok());
            parsed.is_some_and(|on| on.0)
        }
        None => configured.unwrap_or(true),
    };
    is_wanted && !no
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_overrides_the_environment_which_overrides_the_configuration() {
        for (no, variable, configured, expected) in [
            (false, None, None, true),
            (true, None, None, false),
            (true, Some("yes"), Some(true), false),
            (false, Some("no"), Some(true), false),
            (false, Some("yes"), Some(false), true),
            (false, Some("of"), None, false),
            (false, None, Some(false), false),
        ] {
            let found = decided(no, variable.map(OsStr::new), configured);
            assert_eq!(found, expected, "{no} {variable:?} {configured:?}");
        }
    }
}
