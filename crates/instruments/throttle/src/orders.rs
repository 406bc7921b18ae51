//! Control commands for a running throttle, and their state.
//!
//! A command is one line, in the syntax of gh-ost. Reads no socket and no file.

use std::fmt;

/// A control command: one line of the control socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    Status,
    Pause,
    Resume,
    /// The latency limit, as a share: 0.05 for 5%.
    MaxToll(f64),
    /// Maximum bytes a second; `None`: no limit except the latency limit.
    Rate(Option<f64>),
    /// The dump is ended at once.
    Panic,
}

/// All valid commands, for error messages.
pub const KNOWN: &str = "status, pause, resume, max-p99-toll=5%, rate=10M, rate=auto, panic";

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (name, value) = match line.trim().split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (line.trim(), None),
        };
        match (name, value) {
            ("status", None) => Ok(Self::Status),
            ("pause", None) => Ok(Self::Pause),
            ("resume", None) => Ok(Self::Resume),
            ("panic", None) => Ok(Self::Panic),
            ("max-p99-toll", Some(value)) => max_toll(value).map(Self::MaxToll),
            ("rate", Some("auto")) => Ok(Self::Rate(None)),
            ("rate", Some(value)) => bytes_per_s(value).map(|rate| Self::Rate(Some(rate))),
            _ => Err(format!("{:?} is not known: say {KNOWN}", line.trim())),
        }
    }
}

/// `10%`: a share above 0.
pub fn max_toll(text: &str) -> Result<f64, String> {
    match text.parse::<toll_sys::units::Percent>() {
        Ok(percent) if percent.0 > 0.0 => Ok(percent.0 / 100.0),
        Ok(_) => {
            Err("a promise of 0% cannot be kept: what runs beside costs something; write 5% or 10%".into())
        }
        Err(error) => Err(error),
    }
}

/// `10M`, `512K`, `1G`: bytes a second, above 0.
pub fn bytes_per_s(text: &str) -> Result<f64, String> {
    match text.parse::<toll_sys::units::Bytes>() {
        Ok(bytes) if bytes.0 > 0 => Ok(bytes.0 as f64),
        _ => Err(format!("{text:?} is no rate: write bytes a second, above 0: 512K, 10M")),
    }
}

/// Present settings from control commands and the flag file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wishes {
    pub paused: bool,
    pub max_toll: f64,
    pub ceiling: Option<f64>,
    /// Lowest rate that a command can set, bytes a second.
    pub slowest: f64,
    pub panic: bool,
}

impl Wishes {
    /// Applies a command and returns its confirmation. The caller answers `Status`.
    pub fn obey(&mut self, order: Order) -> String {
        match order {
            Order::Status => {}
            Order::Pause => self.paused = true,
            Order::Resume => self.paused = false,
            Order::MaxToll(max_toll) => self.max_toll = max_toll,
            Order::Rate(ceiling) => self.ceiling = ceiling.map(|ceiling| ceiling.max(self.slowest)),
            Order::Panic => self.panic = true,
        }
        self.to_string()
    }
}

impl fmt::Display for Wishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.panic {
            return write!(f, "the dump is being ended");
        }
        let state = if self.paused { "paused" } else { "not paused" };
        write!(f, "{state}, max-p99-toll={}%, rate=", pct(self.max_toll))?;
        match self.ceiling {
            Some(rate) if rate <= self.slowest => write!(f, "{rate:.0}, the slowest"),
            Some(rate) => write!(f, "{rate:.0}"),
            None => write!(f, "auto"),
        }
    }
}

/// A share in percent, without what rounding adds.
pub fn pct(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_orders_and_what_is_not_known_is_told_with_what_is() {
        for (line, order) in [
            ("status\n", Order::Status),
            (" pause ", Order::Pause),
            ("resume", Order::Resume),
            ("max-p99-toll=5%", Order::MaxToll(0.05)),
            ("max-p99-toll = 2.5%", Order::MaxToll(0.025)),
            ("rate=10M", Order::Rate(Some(10_485_760.0))),
            ("rate=auto", Order::Rate(None)),
            ("panic\r\n", Order::Panic),
        ] {
            assert_eq!(line.parse(), Ok(order), "{line:?}");
        }
        for line in
            ["", "stop", "pause now", "rate", "rate=0", "rate=-1M", "max-p99-toll=0%", "max-p99-toll=5"]
        {
            let error = line.parse::<Order>().unwrap_err();
            assert!(error.contains("5%") || error.contains("10M"), "{line:?}: {error}");
        }
    }

    #[test]
    fn orders_change_what_they_name_and_nothing_else() {
        let mut wishes = Wishes { paused: false, max_toll: 0.1, ceiling: None, slowest: 1e5, panic: false };
        assert_eq!(wishes.obey(Order::Pause), "paused, max-p99-toll=10%, rate=auto");
        assert_eq!(wishes.obey(Order::MaxToll(0.025)), "paused, max-p99-toll=2.5%, rate=auto");
        assert_eq!(wishes.obey(Order::Rate(Some(1e6))), "paused, max-p99-toll=2.5%, rate=1000000");
        assert_eq!(
            wishes.obey(Order::Rate(Some(10.0))),
            "paused, max-p99-toll=2.5%, rate=100000, the slowest"
        );
        assert_eq!(wishes.obey(Order::Rate(Some(1e6))), "paused, max-p99-toll=2.5%, rate=1000000");
        assert_eq!(wishes.obey(Order::Resume), "not paused, max-p99-toll=2.5%, rate=1000000");
        assert!(!wishes.panic);
        assert_eq!(wishes.obey(Order::Panic), "the dump is being ended");
        assert!(wishes.panic);
    }
}
