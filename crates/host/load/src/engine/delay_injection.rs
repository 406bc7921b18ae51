//! Artificial delay of events, precise to the microsecond.
//!
//! A known delay: response time measurements must detect it. Never changes what is sent.

use super::{DRAIN_NS, MAX_WAIT_NS, Shared};
use toll_sys::clock::{mono_ns, sleep_until_ns};

/// Whoever sleeps on a virtual machine may come back this late; the last of a wait is spun.
pub const WAKE_LATENCY_NS: u64 = 100_000;

/// Delays each event's last reply by a share of the time since the event started.
///
/// Not since it was due: where events wait for a connection, holding it for a share of that wait too would make them wait
/// longer, and a backlog never end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayInjection {
    share: f64,
}

impl DelayInjection {
    /// `None`: no delay.
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0).then_some(Self { share })
    }

    /// When an event is done whose last reply came at `now_ns`.
    #[inline]
    pub fn release_ns(self, begun_ns: u64, now_ns: u64) -> u64 {
        now_ns + (now_ns.saturating_sub(begun_ns) as f64 * self.share) as u64
    }

    /// Waits until an event is done whose last reply has just come; false: the run was over long before.
    pub fn wait_for_release(self, begun_ns: u64, shared: &Shared) -> bool {
        let mut now = mono_ns();
        let until_ns = self.release_ns(begun_ns, now);
        let mut over_since_ns = None;
        while now < until_ns {
            if shared.is_over(now) && now > *over_since_ns.get_or_insert(now) + DRAIN_NS {
                return false;
            }
            if until_ns - now > WAKE_LATENCY_NS {
                sleep_until_ns((until_ns - WAKE_LATENCY_NS).min(now + MAX_WAIT_NS));
            } else {
                std::hint::spin_loop();
            }
            now = mono_ns();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::DelayInjection;

    #[test]
    fn an_event_takes_the_share_longer_than_since_it_began() {
        let hold = DelayInjection::new(0.02).unwrap();
        assert_eq!(hold.release_ns(1_000_000, 3_000_000), 3_040_000);
        assert_eq!(hold.release_ns(3_000_000, 3_000_000), 3_000_000);
        assert_eq!(DelayInjection::new(0.0), None);
    }
}
