//! What a link is like: round trip, rates, queue, loss, jitter. Parsed once, from a command line or a
//! scenario file, into values that make sense.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// Bytes of one packet, and what of them TCP over IPv4 with time stamps leaves for payload.
pub const MTU: u64 = 1500;
/// See [`MTU`]: 20 bytes of IP, 20 of TCP, 12 of time stamps.
pub const PAYLOAD_OF_MTU: u64 = 1448;

/// A link between the client and one server.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Both ways together.
    pub rtt: Duration,
    /// Bits per second from client to server; none is unlimited.
    pub up: Option<f64>,
    /// Bits per second from server to client; none is unlimited.
    pub down: Option<f64>,
    /// The longest that a packet waits for the line before the queue counts as full.
    pub queue: Duration,
    /// Share of packets lost, 0 to below 1, in each direction.
    pub loss: f64,
    /// Largest extra delay of a packet, in each direction. Packets keep their order.
    pub jitter: Duration,
    /// Seed of loss and jitter: the same seed loses the same packets in a row. netem takes none.
    pub seed: u64,
}

impl LinkSpec {
    /// A link of `rtt` and `bits` per second both ways, a queue of one round trip but at least 50 ms
    /// (what routers are advised to have, and what bursts of several connections need), no loss.
    pub fn new(rtt: Duration, bits: Option<f64>) -> Self {
        Self {
            rtt,
            up: bits,
            down: bits,
            queue: rtt.max(Duration::from_millis(50)),
            loss: 0.0,
            jitter: Duration::ZERO,
            seed: 1,
        }
    }

    /// Payload bytes per second that a line of `bits` per second carries in full TCP segments.
    pub fn payload_limit(bits: f64) -> f64 {
        bits / 8.0 * PAYLOAD_OF_MTU as f64 / MTU as f64
    }

    /// Large segments pass whole: where packets are lost at random they have to be single.
    pub(crate) fn large_segments(&self) -> bool {
        self.loss == 0.0
    }
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
}

impl TryFrom<LinkTable> for LinkSpec {
    type Error = String;

    fn try_from(table: LinkTable) -> Result<Self, String> {
        let rate = |mbit: Option<f64>| match mbit.or(table.mbit) {
            Some(mbit) if mbit > 0.0 => Ok(Some(mbit * 1e6)),
            Some(mbit) => Err(format!("{mbit} Mbit/s is no rate")),
            None => Ok(None),
        };
        let mut spec = Self::new(milliseconds(table.rtt_ms)?, None);
        spec.up = rate(table.up_mbit)?;
        spec.down = rate(table.down_mbit)?;
        spec.loss = share(table.loss_percent)?;
        spec.jitter = milliseconds(table.jitter_ms)?;
        if let Some(queue) = table.queue_ms {
            spec.queue = milliseconds(queue)?;
        }
        Ok(spec)
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

/// A time on the command line: `200ms`, `1.5s`, or a bare number of milliseconds.
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
            number.parse().map_err(|_| format!("'{text}' is no time such as 200ms or 1.5s"))?;
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
            .ok_or_else(|| format!("'{text}' is no rate such as 500mbit or 1gbit"))
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
            .map_err(|_| format!("'{text}' is no share such as 0.1%"))?;
        share(number).map(Self)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.rtt.as_secs_f64() * 1e3)?;
        match (self.up, self.down) {
            (None, None) => {}
            (up, down) if up == down => write!(f, ", {}", rate(up))?,
            (up, down) => write!(f, ", {} up, {} down", rate(up), rate(down))?,
        }
        if self.loss > 0.0 {
            write!(f, ", {} % loss", (self.loss * 1e5).round() / 1e3)?;
        }
        if !self.jitter.is_zero() {
            write!(f, ", {} ms jitter", self.jitter.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
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
    fn times_rates_and_shares_are_read_in_the_units_people_write() {
        assert_eq!("200ms".parse(), Ok(Time(Duration::from_millis(200))));
        assert_eq!("1.5s".parse(), Ok(Time(Duration::from_millis(1500))));
        assert_eq!("7".parse(), Ok(Time(Duration::from_millis(7))));
        assert_eq!("500Mbit".parse(), Ok(Rate(5e8)));
        assert_eq!("1gbit".parse(), Ok(Rate(1e9)));
        assert_eq!("0.1%".parse(), Ok(Percent(0.001)));
        for bad in ["", "x", "-1ms", "1m", "NaN", "inf", "61s"] {
            assert!(bad.parse::<Time>().is_err(), "{bad:?} is no time");
        }
        for bad in ["", "0", "-5mbit", "fast", "inf", "NaN"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad:?} is no rate");
        }
        for bad in ["100%", "-1", "NaN", "%"] {
            assert!(bad.parse::<Percent>().is_err(), "{bad:?} is no share");
        }
    }

    #[test]
    fn a_link_is_named_by_what_is_special_about_it() {
        let mut spec = LinkSpec::new(Duration::from_millis(200), Some(5e8));
        assert_eq!(spec.to_string(), "200 ms, 500 Mbit/s");
        spec.loss = 0.001;
        spec.up = Some(1e9);
        assert_eq!(spec.to_string(), "200 ms, 1 Gbit/s up, 500 Mbit/s down, 0.1 % loss");
    }
}
