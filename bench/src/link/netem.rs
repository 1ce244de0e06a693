//! Links by the kernel's network emulator: a veth pair with a netem queue at each end.
//!
//! netem has been part of Linux since 2.6.7, but a kernel may be built without it; [`available`] checks. Each end
//! delays what it sends by half the RTT. Loss and jitter have no seed here: tc accepts one only since iproute2 6.6. A
//! thread changes the settings at given times; packets that are already in the netem queue still arrive as before.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ends::Ends;
use super::error::LinkError;
use super::namespace::Namespace;
use super::spec::{LinkSpec, MTU};

/// The thread that changes the settings of both ends, if they change. Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct Netem {
    changes: Option<(Arc<Changes>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Changes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The moment from which the times of changes count.
    began: Instant,
    /// Number of stages applied since then, including the initial settings.
    applied: usize,
    stopping: bool,
    failure: Option<LinkError>,
}

/// Whether this kernel has netem. Tries to create one in a new namespace.
pub fn available() -> bool {
    Namespace::new().is_ok_and(|space| {
        space.ip(&["link", "add", "probe0", "type", "dummy"]).is_ok()
            && space.run("tc", &tc("add", "probe0", &["delay", "1ms"])).is_ok()
    })
}

/// Creates a veth pair between the namespaces and sets up netem at both ends.
pub(super) fn start(
    client: &Namespace,
    server: &Namespace,
    ends: &Ends,
    spec: &LinkSpec,
) -> Result<Netem, LinkError> {
    let server_path = server.path();
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
        &server_path.to_string_lossy(),
    ])?;
    ends.configure(client, server)?;
    let sides = [(client, &ends.client_device, spec.up), (server, &ends.server_device, spec.down)];
    for (namespace, device, rate) in sides {
        if !spec.large_segments() {
            // Loss must affect single packets, not whole GSO segments.
            namespace.ip(&["link", "set", device, "gso_max_segs", "1"])?;
        }
        shape("add", namespace, device, spec, rate)?;
    }
    let mut netem = Netem { changes: None };
    if !spec.changes.is_empty() {
        let sides = [
            (client.try_clone()?, ends.client_device.clone()),
            (server.try_clone()?, ends.server_device.clone()),
        ];
        netem.start_changes(spec, sides)?;
    }
    Ok(netem)
}

impl Netem {
    /// Starts the thread that applies the changes of `spec`.
    fn start_changes(
        &mut self,
        spec: &LinkSpec,
        sides: [(Namespace, String); 2],
    ) -> Result<(), LinkError> {
        let mut stages = vec![(Duration::ZERO, spec.clone())];
        stages.extend(spec.stages());
        let began = Instant::now();
        let state = State { began, applied: 1, stopping: false, failure: None };
        let changes = Arc::new(Changes { state: Mutex::new(state), changed: Condvar::new() });
        let shared = Arc::clone(&changes);
        let thread = thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || shared.run(&stages, &sides))
            .map_err(|error| LinkError::new("starting a thread", &error))?;
        self.changes = Some((changes, thread));
        Ok(())
    }

    /// Restores the initial settings; the times of changes count from now on.
    pub(super) fn restart(&self) {
        let Some((changes, _)) = &self.changes else { return };
        let mut state = changes.lock();
        (state.began, state.applied) = (Instant::now(), 0);
        changes.changed.notify_all();
    }

    /// Returns the first error of a change, if any has failed.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        let failure = self.changes.as_ref().and_then(|(changes, _)| changes.lock().failure.clone());
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        let Some((changes, thread)) = self.changes.take() else { return };
        changes.lock().stopping = true;
        changes.changed.notify_all();
        // If the thread panicked, it has printed that itself.
        let _ = thread.join();
    }
}

impl Changes {
    fn run(&self, stages: &[(Duration, LinkSpec)], sides: &[(Namespace, String); 2]) {
        let mut state = self.lock();
        while !state.stopping {
            let due = stages.get(state.applied).map(|(after, _)| state.began + *after);
            let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
            match wait {
                Some(Duration::ZERO) => {
                    let (_, spec) = &stages[state.applied];
                    state.applied += 1;
                    drop(state);
                    let rates = [spec.up, spec.down];
                    let made = sides.iter().zip(rates).try_for_each(|((space, device), rate)| {
                        shape("change", space, device, spec, rate)
                    });
                    state = self.lock();
                    state.failure = state.failure.take().or(made.err());
                }
                Some(wait) => {
                    let waited = self.changed.wait_timeout(state, wait);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds netem to a device (`verb` is `add`), or changes its settings (`change`).
fn shape(
    verb: &str,
    namespace: &Namespace,
    device: &str,
    spec: &LinkSpec,
    rate: Option<f64>,
) -> Result<(), LinkError> {
    let settings = netem_settings(spec, rate);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    namespace.run("tc", &tc(verb, device, &settings))
}

/// The arguments of tc.
fn tc<'a>(verb: &'a str, device: &'a str, settings: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["qdisc", verb, "dev", device, "root", "netem"];
    words.extend_from_slice(settings);
    words
}

/// The settings in the syntax of tc-netem(8): `delay … loss … limit … rate …`.
fn netem_settings(spec: &LinkSpec, rate: Option<f64>) -> Vec<String> {
    let one_way = spec.rtt / 2;
    // netem's jitter is symmetric about the delay, ours is only added to it: so shift the delay.
    let spread = spec.jitter / 2;
    let mut words = vec!["delay".to_owned(), format!("{}us", (one_way + spread).as_micros())];
    if !spread.is_zero() {
        words.push(format!("{}us", spread.as_micros()));
    }
    if spec.loss > 0.0 {
        words.extend(["loss".to_owned(), format!("{:.6}%", spec.loss * 100.0)]);
    }
    // netem's limit includes packets in flight.
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
    fn a_link_spec_is_translated_to_tc_arguments() {
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
