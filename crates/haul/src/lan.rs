//! Chooses the bridge of the local network, if exactly one announces itself.

use haul_peer::ticket::{BridgeAddress, PeerKey};
use haul_storage::{Error, ErrorKind, Result};

use crate::output::Printer;

/// The bridge that was found on the local network, if any. It is printed, since the user has not named it.
///
/// # Errors
/// If there are several: everyone can announce one, so the user has to choose.
pub(crate) fn only(found: &[BridgeAddress], printer: &Printer) -> Result<Option<BridgeAddress>> {
    match found {
        [] => Ok(None),
        [bridge] => {
            let named = named(bridge);
            printer.note(format_args!("haul: using the bridge {named} of the local network"));
            Ok(Some(bridge.clone()))
        }
        several => {
            let named: Vec<_> = several.iter().map(named).collect();
            Err(Error::new(ErrorKind::InvalidInput, "choose a bridge")
                .because(format!("the local network has several: {}", named.join(", ")))
                .hinting("name yours with --bridge, or bridge in [defaults] of the configuration"))
        }
    }
}

/// The bridge in the syntax of `--bridge`.
fn named(bridge: &BridgeAddress) -> String {
    let key = bridge.key.map_or_else(String::new, |key| PeerKey(key).to_text());
    format!("{bridge}/{key}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BridgeArg, OutputArgs};

    #[test]
    fn none_of_several_bridges_is_chosen() {
        let printer = Printer::new(OutputArgs { quiet: true, ..OutputArgs::default() });
        let bridge = |last: u8| {
            let bridge = BridgeAddress::new(&format!("192.0.2.{last}"), 4181).unwrap();
            bridge.with_key(Some([last; 32]))
        };
        assert_eq!(only(&[], &printer).unwrap(), None);
        assert_eq!(only(&[bridge(1)], &printer).unwrap(), Some(bridge(1)));
        let message = only(&[bridge(1), bridge(2)], &printer).unwrap_err().to_string();
        for one in [bridge(1), bridge(2)] {
            assert!(message.contains(&named(&one)), "{message}");
            assert_eq!(named(&one).parse::<BridgeArg>().unwrap().0, one);
        }
    }
}
