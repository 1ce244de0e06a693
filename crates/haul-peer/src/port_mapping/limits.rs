//! Times and sizes of port mappings.

use std::time::Duration;

/// The requested lease. It is renewed when half of it has passed. A mapping outlives a killed sharer by at most a
/// lease.
pub(super) const LEASE: Duration = Duration::from_secs(3600);

/// Shorter leases count as this one: a router must not make haul renew all the time.
pub(super) const SHORTEST_LEASE: Duration = Duration::from_secs(60);

/// Time between two attempts to renew a mapping that is lost.
pub(super) const RETRY: Duration = Duration::from_secs(60);

/// How often the clock is checked for a lease to renew: while the machine is suspended, timers stand still.
pub(super) const CLOCK: Duration = Duration::from_secs(30);

/// How long a ticket waits for the first mapping, over all methods.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Time limit of all requests to the router for a mapping. The first mapping is removed again if it comes later than
/// [`PATIENCE`].
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 3 });

/// How long to wait for the response to a packet of PCP or NAT-PMP. Routers of tests always respond, but late on a busy
/// machine.
pub(super) const PACKET: Duration = Duration::from_millis(if cfg!(test) { 20_000 } else { 200 });

/// How long to wait for the response to an SSDP search, each time that it is sent.
pub(super) const SEARCH: Duration = Duration::from_millis(250);

/// Time limit for removing a mapping.
pub(super) const REMOVED: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Longest HTTP response in bytes, head and body each. Descriptions of real routers have 3 to 20 KiB.
pub(super) const RESPONSE: usize = 256 << 10;

/// Maximum WAN connections of a router that are tried.
pub(super) const SERVICES: usize = 4;
