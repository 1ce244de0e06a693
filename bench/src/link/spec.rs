//! The properties of a link: RTT, rates, queue, loss, jitter, and how they change over time. Parsed
//! once, from a command line or a scenario file, into valid values.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// Bytes of one packet.
pub const MTU: u64 = 1500;
/// Payload bytes of a packet: [`MTU`] less 20 bytes of IPv4, 20 of TCP, 12 of time stamps.
pub const PAYLOAD_OF_MTU: u64 = 1448;

/// A link between the client and one server.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Round-trip time.
    pub rtt: Duration,
    /// Bits per second from client to server; `None`: unlimited.
    pub up: Option<f64>,
    /// Bits per second from server to client; `None`: unlimited.
    pub down: Option<f64>,
    /// The longest that a packet waits for the line before the queue counts as full.
    pub queue: Duration,
    /// Share of packets lost, 0 to below 1, in each direction.
    pub loss: f64,
    /// Largest extra delay of a packet, in each direction. Packets keep their order, except with netem and no rate.
    pub jitter: Duration,
    /// Seed of loss and jitter: the same seed drops the same packets. Unused with netem.
    pub seed: u64,
    /// Changes over time, in chronological order.
    pub changes: Vec<Change>,
}

/// A change of a link at a given time. `None` leaves a property as it was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Time since the link, or a run over it, began.
    pub after: Duration,
    /// Round-trip time. A queue of the default length becomes as long as the new default.
    pub rtt: Option<Duration>,
    /// Bits per second from client to server.
    pub up: Option<f64>,
    /// Bits per second from server to client.
    pub down: Option<f64>,
    /// Longest wait in the queue.
    pub queue: Option<Duration>,
    /// Share of packets lost, in each direction.
    pub loss: Option<f64>,
}

impl LinkSpec {
    /// A link of `rtt` and `bits` per second both ways, with a queue of one RTT but at least 50 ms, and without loss.
    pub fn new(rtt: Duration, bits: Option<f64>) -> Self {
        Self {
            rtt,
            up: bits,
            down: bits,
            queue: default_queue(rtt),
            loss: 0.0,
            jitter: Duration::ZERO,
            seed: 1,
            changes: Vec::new(),
        }
    }

    /// The time of each change, and the link after it.
    pub fn stages(&self) -> Vec<(Duration, Self)> {
        let mut now = Self { changes: Vec::new(), ..self.clone() };
        let stage = |change: &Change| {
            let queue_is_default = now.queue == default_queue(now.rtt);
            now.rtt = change.rtt.unwrap_or(now.rtt);
            now.up = change.up.or(now.up);
            now.down = change.down.or(now.down);
            now.loss = change.loss.unwrap_or(now.loss);
            if queue_is_default {
                now.queue = default_queue(now.rtt);
            }
            now.queue = change.queue.unwrap_or(now.queue);
            (change.after, now.clone())
        };
        self.changes.iter().map(stage).collect()
    }

    /// Splits the path at a machine in its middle: the link to the server, and that to the client. Each has half of
    /// the RTT, and the whole queue. The client's link has the loss and the jitter; its `up` leads from the middle to
    /// the client.
    pub(crate) fn halves(&self) -> [Self; 2] {
        let half = |spec: &Self| Self { rtt: spec.rtt / 2, changes: Vec::new(), ..spec.clone() };
        let clean = |spec: &Self| Self { loss: 0.0, jitter: Duration::ZERO, ..half(spec) };
        let turned = |spec: &Self| Self { up: spec.down, down: spec.up, ..half(spec) };
        let with_changes = |side: &dyn Fn(&Self) -> Self| {
            let change = |(after, stage): &(Duration, Self)| {
                let Self { rtt, up, down, queue, loss, .. } = side(stage);
                let (rtt, queue, loss) = (Some(rtt), Some(queue), Some(loss));
                Change { after: *after, rtt, up, down, queue, loss }
            };
            Self { changes: self.stages().iter().map(change).collect(), ..side(self) }
        };
        [with_changes(&clean), with_changes(&turned)]
    }

    /// Adds a change. Changes are added in chronological order.
    ///
    /// # Errors
    /// `change` is not later than the one before, or than 0.
    pub fn add_change(&mut self, change: Change) -> Result<(), String> {
        let last = self.changes.last().map_or(Duration::ZERO, |last| last.after);
        if change.after <= last {
            return Err(format!(
                "the change at {} s is not later than the previous one",
                change.after.as_secs_f64()
            ));
        }
        self.changes.push(change);
        Ok(())
    }

    /// Payload bytes per second that a line of `bits` per second carries in full TCP segments.
    pub fn payload_limit(bits: f64) -> f64 {
        bits / 8.0 * PAYLOAD_OF_MTU as f64 / MTU as f64
    }

    /// Whether large segments pass whole: random loss needs single packets.
    pub(crate) fn large_segments(&self) -> bool {
        self.loss == 0.0 && self.changes.iter().all(|change| change.loss.unwrap_or(0.0) == 0.0)
    }
}

/// One RTT, as is advised for routers, but at least 50 ms for bursts of several connections.
fn default_queue(rtt: Duration) -> Duration {
    rtt.max(Duration::from_millis(50))
}

/// A link in a scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    rtt_ms: f64,
    /// Both ways.
    mbit: Option<f64>,
    up_mbit: Option<f64>,
    down_mbit: Option<f64>,
    queue_ms: Option<f64>,
    #[serde(default)]
    loss_percent: f64,
    #[serde(default)]
    jitter_ms: f64,
    /// Changes, in order of time.
    #[serde(default)]
    then: Vec<ChangeTable>,
}

/// A change of a link in a scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTable {
    after_s: f64,
    rtt_ms: Option<f64>,
    /// Both ways.
    mbit: Option<f64>,
    up_mbit: Option<f64>,
    down_mbit: Option<f64>,
    queue_ms: Option<f64>,
    loss_percent: Option<f64>,
}

impl TryFrom<LinkTable> for LinkSpec {
    type Error = String;

    fn try_from(table: LinkTable) -> Result<Self, String> {
        let mut spec = Self::new(milliseconds(table.rtt_ms)?, None);
        spec.up = megabits(table.up_mbit.or(table.mbit))?;
        spec.down = megabits(table.down_mbit.or(table.mbit))?;
        spec.loss = share(table.loss_percent)?;
        spec.jitter = milliseconds(table.jitter_ms)?;
        if let Some(queue) = table.queue_ms {
            spec.queue = milliseconds(queue)?;
        }
        for change in table.then {
            spec.add_change(Change {
                after: milliseconds(change.after_s * 1e3)?,
                rtt: change.rtt_ms.map(milliseconds).transpose()?,
                up: megabits(change.up_mbit.or(change.mbit))?,
                down: megabits(change.down_mbit.or(change.mbit))?,
                queue: change.queue_ms.map(milliseconds).transpose()?,
                loss: change.loss_percent.map(share).transpose()?,
            })?;
        }
        Ok(spec)
    }
}

/// Bits per second.
fn megabits(mbit: Option<f64>) -> Result<Option<f64>, String> {
    match mbit {
        Some(mbit) if mbit > 0.0 => Ok(Some(mbit * 1e6)),
        Some(mbit) => Err(format!("{mbit} Mbit/s is not a rate; it must be above 0")),
        None => Ok(None),
    }
}

impl FromStr for Change {
    type Err = String;

    /// `4s:rtt=250ms,rate=300mbit`: a time and the new settings: `rtt`, `rate` (both ways),
    /// `rate-back`, `queue`, `loss`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (after, settings) = text
            .split_once(':')
            .ok_or_else(|| format!("'{text}' is not a change; write 4s:rtt=250ms,rate=300mbit"))?;
        let mut change = Self { after: after.parse::<Time>()?.0, ..Self::default() };
        let mut back = None;
        for setting in settings.split(',') {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "rtt" => change.rtt = Some(value.parse::<Time>()?.0),
                "rate" => change.up = Some(value.parse::<Rate>()?.0),
                "rate-back" => back = Some(value.parse::<Rate>()?.0),
                "queue" => change.queue = Some(value.parse::<Time>()?.0),
                "loss" => change.loss = Some(value.parse::<Percent>()?.0),
                _ => {
                    return Err(format!(
                        "unknown setting '{name}'; use rtt, rate, rate-back, queue or loss"
                    ));
                }
            }
        }
        change.down = back.or(change.up);
        Ok(change)
    }
}

fn milliseconds(value: f64) -> Result<Duration, String> {
    if !(0.0..=60_000.0).contains(&value) {
        return Err(format!("{value} ms is not between 0 and a minute"));
    }
    Ok(Duration::from_secs_f64(value / 1e3))
}

fn share(percent: f64) -> Result<f64, String> {
    if !(0.0..100.0).contains(&percent) {
        return Err(format!("a loss of {percent} % is not between 0 and 100"));
    }
    Ok(percent / 100.0)
}

/// A time on the command line, at most 60 s: `200ms`, `1.5s`, or a bare number of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix("ms") {
            Some(number) => (number, 1.0),
            None => text.strip_suffix('s').map_or((text, 1.0), |number| (number, 1e3)),
        };
        let number: f64 =
            number.parse().map_err(|_| format!("'{text}' is not a time; write 200ms or 1.5s"))?;
        milliseconds(number * scale).map(Self)
    }
}

/// A rate on the command line: `500mbit`, `1gbit`, `64kbit`, or a bare number of Mbit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("", 1e6)];
        let lower = text.to_ascii_lowercase();
        units
            .iter()
            .find_map(|(unit, scale)| lower.strip_suffix(unit).map(|number| (number, scale)))
            .and_then(|(number, scale)| number.parse::<f64>().ok().map(|number| number * scale))
            .filter(|bits| bits.is_finite() && *bits > 0.0)
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not a rate; write 500mbit or 1gbit"))
    }
}

/// A share on the command line: `1%`, `0.1%`, or a bare number of percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text
            .trim_end_matches('%')
            .parse()
            .map_err(|_| format!("'{text}' is not a share; write 0.1%"))?;
        share(number).map(Self)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.rtt.as_secs_f64() * 1e3)?;
        if (self.up, self.down) != (None, None) {
            write!(f, ", {}", rates(self.up, self.down))?;
        }
        if self.loss > 0.0 {
            write!(f, ", {} % loss", (self.loss * 1e5).round() / 1e3)?;
        }
        if !self.jitter.is_zero() {
            write!(f, ", {} ms jitter", self.jitter.as_secs_f64() * 1e3)?;
        }
        self.changes.iter().try_for_each(|change| write!(f, "; {change}"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} s", self.after.as_secs_f64())?;
        if let Some(rtt) = self.rtt {
            write!(f, ", {} ms", rtt.as_secs_f64() * 1e3)?;
        }
        match (self.up, self.down) {
            (None, None) => {}
            (Some(up), None) => write!(f, ", {} up", rate(Some(up)))?,
            (None, Some(down)) => write!(f, ", {} down", rate(Some(down)))?,
            (up, down) => write!(f, ", {}", rates(up, down))?,
        }
        if let Some(queue) = self.queue {
            write!(f, ", queue of {} ms", queue.as_secs_f64() * 1e3)?;
        }
        if let Some(loss) = self.loss {
            write!(f, ", {} % loss", (loss * 1e5).round() / 1e3)?;
        }
        Ok(())
    }
}

fn rates(up: Option<f64>, down: Option<f64>) -> String {
    if up == down { rate(up) } else { format!("{} up, {} down", rate(up), rate(down)) }
}

fn rate(bits: Option<f64>) -> String {
    match bits {
        None => "unlimited".to_owned(),
        Some(bits) if bits >= 1e9 => format!("{} Gbit/s", bits / 1e9),
        Some(bits) => format!("{} Mbit/s", bits / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rates_and_shares_are_parsed_with_their_units() {
        assert_eq!("200ms".parse(), Ok(Time(Duration::from_millis(200))));
        assert_eq!("1.5s".parse(), Ok(Time(Duration::from_millis(1500))));
        assert_eq!("7".parse(), Ok(Time(Duration::from_millis(7))));
        assert_eq!("500Mbit".parse(), Ok(Rate(5e8)));
        assert_eq!("1gbit".parse(), Ok(Rate(1e9)));
        assert_eq!("0.1%".parse(), Ok(Percent(0.001)));
        for bad in ["", "x", "-1ms", "1m", "NaN", "inf", "61s"] {
            assert!(bad.parse::<Time>().is_err(), "{bad:?} is not a time");
        }
        for bad in ["", "0", "-5mbit", "fast", "inf", "NaN"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad:?} is not a rate");
        }
        for bad in ["100%", "-1", "NaN", "%"] {
            assert!(bad.parse::<Percent>().is_err(), "{bad:?} is not a share");
        }
    }

    #[test]
    fn a_change_is_parsed_into_its_time_and_new_settings() {
        let change: Change = "4s:rtt=250ms,rate=300mbit".parse().expect("a change");
        let (after, rtt) = (Duration::from_secs(4), Duration::from_millis(250));
        let both =
            Change { after, rtt: Some(rtt), up: Some(3e8), down: Some(3e8), ..Change::default() };
        assert_eq!(change, both);
        let change: Change = "0.5s:rate-back=50mbit,loss=1%".parse().expect("a change");
        assert_eq!((change.up, change.down, change.loss), (None, Some(5e7), Some(0.01)));
        for bad in ["4s", "rtt=2ms", "4s:rtt", "4s:rtt=2,speed=3", "4s:", "x:rtt=2"] {
            assert!(bad.parse::<Change>().is_err(), "{bad:?} is not a change");
        }
    }

    #[test]
    fn a_change_keeps_the_settings_that_it_does_not_name() {
        let mut spec = LinkSpec::new(Duration::from_millis(20), Some(3e8));
        let add = |spec: &mut LinkSpec, text: &str| {
            spec.add_change(text.parse().expect("a change")).expect("a later one");
        };
        add(&mut spec, "4s:rtt=250ms");
        add(&mut spec, "5s:rate=50mbit,queue=10ms");
        add(&mut spec, "6s:rtt=300ms");
        let stages = spec.stages();
        let shape = |n: usize| {
            let (after, link) = &stages[n];
            (after.as_secs(), link.rtt.as_millis(), link.up, link.queue.as_millis())
        };
        // The default queue follows the RTT, a queue that was set stays.
        assert_eq!(shape(0), (4, 250, Some(3e8), 250));
        assert_eq!(shape(1), (5, 250, Some(5e7), 10));
        assert_eq!(shape(2), (6, 300, Some(5e7), 10));
        assert!(spec.add_change("6s:rtt=1ms".parse().expect("a change")).is_err(), "not later");
        assert_eq!(
            spec.to_string(),
            "20 ms, 300 Mbit/s; after 4 s, 250 ms; after 5 s, 50 Mbit/s, queue of 10 ms; after 6 s, \
             300 ms"
        );
    }

    #[test]
    fn a_path_is_divided_in_the_middle() {
        let mut spec = LinkSpec::new(Duration::from_millis(100), Some(3e8));
        (spec.up, spec.loss) = (Some(5e7), 0.01);
        spec.add_change("4s:rtt=250ms".parse().expect("a change")).expect("a later one");
        let [server, client] = spec.halves();
        assert_eq!((server.up, server.down, server.loss), (Some(5e7), Some(3e8), 0.0));
        assert_eq!((client.up, client.down, client.loss), (Some(3e8), Some(5e7), 0.01));
        for half in [&server, &client] {
            assert_eq!((half.rtt.as_millis(), half.queue.as_millis()), (50, 100));
            let (after, later) = &half.stages()[0];
            assert_eq!((after.as_secs(), later.rtt.as_millis()), (4, 125));
            assert_eq!((later.queue.as_millis(), later.loss), (250, half.loss));
        }
    }

    #[test]
    fn a_link_is_described_without_its_default_settings() {
        let mut spec = LinkSpec::new(Duration::from_millis(200), Some(5e8));
        assert_eq!(spec.to_string(), "200 ms, 500 Mbit/s");
        spec.loss = 0.001;
        spec.up = Some(1e9);
        assert_eq!(spec.to_string(), "200 ms, 1 Gbit/s up, 500 Mbit/s down, 0.1 % loss");
    }
}
