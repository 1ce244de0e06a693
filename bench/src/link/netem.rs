//! The same link by the kernel's own emulator: a veth pair, each end with a netem queue.
//!
//! netem is part of Linux since 2.6.7 and may be left out of a kernel; [`available`] asks. Each end
//! delays what it sends by half the round trip. Loss and jitter have no seed here: tc takes one only
//! since iproute2 6.7.

use super::{Ends, LinkError, LinkSpec, Namespace};
use crate::link::spec::MTU;

/// Whether this kernel has netem, found by asking for one in a namespace of its own.
pub fn available() -> bool {
    Namespace::new().is_ok_and(|space| {
        space.ip(&["link", "add", "probe0", "type", "dummy"]).is_ok()
            && space.run("tc", &tc("probe0", &["delay", "1ms"])).is_ok()
    })
}

/// Makes a veth pair between the namespaces and shapes both ends.
pub(super) fn start(
    client: &Namespace,
    server: &Namespace,
    ends: &Ends,
    spec: &LinkSpec,
) -> Result<(), LinkError> {
    let there = server.path();
    client.ip(&[
        "link",
        "add",
        &ends.client_device,
        "type",
        "veth",
        "peer",
        "name",
        &ends.server_device,
        "netns",
        &there.to_string_lossy(),
    ])?;
    ends.configure(client, server)?;
    let sides = [(client, &ends.client_device, spec.up), (server, &ends.server_device, spec.down)];
    for (namespace, device, rate) in sides {
        if !spec.large_segments() {
            // Loss has to fall on single packets.
            namespace.ip(&["link", "set", device, "gso_max_segs", "1"])?;
        }
        let settings = netem_settings(spec, rate);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        namespace.run("tc", &tc(device, &settings))?;
    }
    Ok(())
}

fn tc<'a>(device: &'a str, settings: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["qdisc", "add", "dev", device, "root", "netem"];
    words.extend_from_slice(settings);
    words
}

/// `delay … loss … rate … limit …`, as tc-netem(8) has them.
fn netem_settings(spec: &LinkSpec, rate: Option<f64>) -> Vec<String> {
    let one_way = spec.rtt / 2;
    // netem spreads evenly about its delay; our jitter is never less than none.
    let spread = spec.jitter / 2;
    let mut words = vec!["delay".to_owned(), format!("{}us", (one_way + spread).as_micros())];
    if !spread.is_zero() {
        words.push(format!("{}us", spread.as_micros()));
    }
    if spec.loss > 0.0 {
        words.extend(["loss".to_owned(), format!("{:.6}%", spec.loss * 100.0)]);
    }
    // netem's queue holds what is under way too.
    let held = (one_way + spec.jitter + spec.queue).as_secs_f64();
    let packets = rate.map_or(1e6, |bits| (bits / 8.0 * held / MTU as f64).max(100.0));
    words.extend(["limit".to_owned(), format!("{packets:.0}")]);
    if let Some(bits) = rate {
        words.extend(["rate".to_owned(), format!("{bits:.0}bit")]);
    }
    words
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_link_becomes_the_settings_that_tc_takes() {
        let mut spec = LinkSpec::new(Duration::from_millis(200), Some(5e8));
        assert_eq!(
            netem_settings(&spec, spec.up).join(" "),
            "delay 100000us limit 12500 rate 500000000bit"
        );
        spec.loss = 0.01;
        spec.jitter = Duration::from_millis(3);
        assert_eq!(
            netem_settings(&spec, None).join(" "),
            "delay 101500us 1500us loss 1.000000% limit 1000000"
        );
    }
}
