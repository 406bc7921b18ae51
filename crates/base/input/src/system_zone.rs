//! Time zone for logs without one: that of this machine.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use toll_wire::log::{Civil, Zone};

/// The zone of this machine.
pub struct SystemZone(TimeZone);

impl SystemZone {
    pub fn detect() -> Self {
        Self(TimeZone::system())
    }
}

impl Zone for SystemZone {
    fn unix_seconds(&self, civil: Civil) -> Option<i64> {
        let Civil { year, month, day, hour, minute, second } = civil;
        let narrow = |n: u8| i8::try_from(n).ok();
        let time = DateTime::new(
            year,
            narrow(month)?,
            narrow(day)?,
            narrow(hour)?,
            narrow(minute)?,
            narrow(second.min(59))?,
            0,
        );
        Some(self.0.to_ambiguous_zoned(time.ok()?).compatible().ok()?.timestamp().as_second())
    }
}
