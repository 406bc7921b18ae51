//! Control commands for a running throttle, and their state.
//!
//! A command is one line, in the syntax of gh-ost. Reads no socket and no file.

use std::fmt;

/// A control command: one line of the control socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ControlCommand {
    Status,
    Pause,
    Resume,
    /// The latency limit, as a share: 0.05 for 5%.
    MaxP99Overhead(f64),
    /// Maximum bytes a second; `None`: no limit except the latency limit.
    Rate(Option<f64>),
    /// The dump is ended at once.
    Panic,
}

/// All valid commands, for error messages.
pub const VALID_COMMANDS: &str = "status, pause, resume, max-p99-toll=5%, rate=10M, rate=auto, panic";

impl std::str::FromStr for ControlCommand {
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
            ("max-p99-toll", Some(value)) => parse_max_p99_overhead(value).map(Self::MaxP99Overhead),
            ("rate", Some("auto")) => Ok(Self::Rate(None)),
            ("rate", Some(value)) => parse_rate(value).map(|rate| Self::Rate(Some(rate))),
            _ => Err(format!("{:?} is not a command. Use one of: {VALID_COMMANDS}", line.trim())),
        }
    }
}

/// `10%`: a share above 0.
pub fn parse_max_p99_overhead(text: &str) -> Result<f64, String> {
    match text.parse::<toll_sys::units::Percent>() {
        Ok(percent) if percent.0 > 0.0 => Ok(percent.0 / 100.0),
        Ok(_) => Err("0% is not possible: a dump always costs something. Use 5% or 10%.".into()),
        Err(error) => Err(error),
    }
}

/// `10M`, `512K`, `1G`: bytes a second, above 0.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<toll_sys::units::Bytes>() {
        Ok(bytes) if bytes.0 > 0 => Ok(bytes.0 as f64),
        _ => Err(format!("{text:?} is not a rate: write bytes a second above 0, such as 512K or 10M")),
    }
}

/// Present settings from control commands and the flag file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThrottleSettings {
    pub paused: bool,
    pub max_p99_overhead: f64,
    pub ceiling: Option<f64>,
    /// Lowest rate that a command can set, bytes a second.
    pub min_rate: f64,
    pub panic: bool,
}

impl ThrottleSettings {
    /// Applies a command and returns its confirmation. The caller answers `Status`.
    pub fn apply(&mut self, order: ControlCommand) -> String {
        match order {
            ControlCommand::Status => {}
            ControlCommand::Pause => self.paused = true,
            ControlCommand::Resume => self.paused = false,
            ControlCommand::MaxP99Overhead(max_toll) => self.max_p99_overhead = max_toll,
            ControlCommand::Rate(ceiling) => self.ceiling = ceiling.map(|ceiling| ceiling.max(self.min_rate)),
            ControlCommand::Panic => self.panic = true,
        }
        self.to_string()
    }
}

impl fmt::Display for ThrottleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.panic {
            return write!(f, "ending the dump");
        }
        let state = if self.paused { "paused" } else { "not paused" };
        write!(f, "{state}, max-p99-toll={}%, rate=", share_to_percent(self.max_p99_overhead))?;
        match self.ceiling {
            Some(rate) if rate <= self.min_rate => write!(f, "{rate:.0}, the lowest"),
            Some(rate) => write!(f, "{rate:.0}"),
            None => write!(f, "auto"),
        }
    }
}

/// A share in percent, without what rounding adds.
pub fn share_to_percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_orders_and_what_is_not_known_is_told_with_what_is() {
        for (line, order) in [
            ("status\n", ControlCommand::Status),
            (" pause ", ControlCommand::Pause),
            ("resume", ControlCommand::Resume),
            ("max-p99-toll=5%", ControlCommand::MaxP99Overhead(0.05)),
            ("max-p99-toll = 2.5%", ControlCommand::MaxP99Overhead(0.025)),
            ("rate=10M", ControlCommand::Rate(Some(10_485_760.0))),
            ("rate=auto", ControlCommand::Rate(None)),
            ("panic\r\n", ControlCommand::Panic),
        ] {
            assert_eq!(line.parse(), Ok(order), "{line:?}");
        }
        for line in
            ["", "stop", "pause now", "rate", "rate=0", "rate=-1M", "max-p99-toll=0%", "max-p99-toll=5"]
        {
            let error = line.parse::<ControlCommand>().unwrap_err();
            assert!(error.contains("5%") || error.contains("10M"), "{line:?}: {error}");
        }
    }

    #[test]
    fn orders_change_what_they_name_and_nothing_else() {
        let mut settings = ThrottleSettings {
            paused: false,
            max_p99_overhead: 0.1,
            ceiling: None,
            min_rate: 1e5,
            panic: false,
        };
        assert_eq!(settings.apply(ControlCommand::Pause), "paused, max-p99-toll=10%, rate=auto");
        assert_eq!(
            settings.apply(ControlCommand::MaxP99Overhead(0.025)),
            "paused, max-p99-toll=2.5%, rate=auto"
        );
        assert_eq!(
            settings.apply(ControlCommand::Rate(Some(1e6))),
            "paused, max-p99-toll=2.5%, rate=1000000"
        );
        assert_eq!(
            settings.apply(ControlCommand::Rate(Some(10.0))),
            "paused, max-p99-toll=2.5%, rate=100000, the lowest"
        );
        assert_eq!(
            settings.apply(ControlCommand::Rate(Some(1e6))),
            "paused, max-p99-toll=2.5%, rate=1000000"
        );
        assert_eq!(settings.apply(ControlCommand::Resume), "not paused, max-p99-toll=2.5%, rate=1000000");
        assert!(!settings.panic);
        assert_eq!(settings.apply(ControlCommand::Panic), "ending the dump");
        assert!(settings.panic);
    }
}
