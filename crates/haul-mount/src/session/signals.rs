//! The signals of a process that waits for a response.
//!
//! The kernel interrupts a request for every signal that reaches the process, even if it only tells it that a child has
//! ended. Programs do not expect `EINTR` from `stat` or `rename` then.

use std::fs;

/// Signals that programs handle while they do something else: SIGCHLD, SIGCONT, SIGURG, SIGVTALRM, SIGPROF, SIGWINCH
/// and SIGIO.
const HARMLESS: u64 = bit(17) | bit(18) | bit(23) | bit(26) | bit(27) | bit(28) | bit(29);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Whether the request of a thread should be aborted, after the kernel has interrupted it. Not if only harmless signals
/// are pending. Without any signal, the system is being suspended, and waits for the thread.
pub(super) fn is_stopped(thread: u32) -> bool {
    // Without its status, the thread has ended, or is not seen from here.
    fs::read_to_string(format!("/proc/{thread}/status")).map_or(true, |status| stops(&status))
}

/// The same, from its `/proc/PID/status`.
fn stops(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk");
    pending == 0 || pending & !HARMLESS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_are_not_harmless_stop_a_request() {
        let status = |own: u64, shared: u64, blocked: u64| {
            format!(
                "Name:\tx\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        let (kill, interrupt, child) = (bit(9), bit(2), bit(17));
        assert!(stops(&status(kill, child, 0)));
        assert!(stops(&status(0, interrupt | child, 0)));
        assert!(!stops(&status(0, child, 0)));
        assert!(!stops(&status(bit(23), child, 0)));
        // A blocked signal is not the reason.
        assert!(!stops(&status(0, interrupt | child, interrupt)));
        // The system is being suspended.
        assert!(stops(&status(0, 0, 0)));
        assert!(stops(""));
    }
}
