//! Pacing accuracy: deviations of send times from the schedule. Pure: the caller passes the send times.

use hdrhistogram::Histogram;

/// Widths of the windows in which the rate is looked at, us.
pub const WINDOWS_US: [u64; 3] = [1_000, 10_000, 100_000];

/// Deviation of the bytes sent within windows of one width from the bytes due in them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowDeviation {
    pub width_us: u64,
    /// Whole windows between start and end.
    pub windows: u64,
    /// Root of the mean square, percent of what is due in a window on average.
    pub rms_pct: f64,
    /// The largest, on either side.
    pub worst_pct: f64,
}

/// Sent so far, and when.
#[derive(Debug)]
pub struct PacingStats {
    pub packets: u64,
    pub bytes: u64,
    /// Of these, the last packet's: when it leaves, only the others' time is over.
    pub last_bytes: u64,
    /// After its deadline each packet left, ns; empty at top speed.
    pub lateness_ns: Histogram<u64>,
    grids: [WindowGrid; WINDOWS_US.len()],
}

/// Windows of one width; only one is open for what left, another for what was due.
#[derive(Debug, Clone, Default)]
struct WindowGrid {
    width_ns: u64,
    /// Bytes that left in a window less those due in it; windows are closed in order, but packets are due in earlier
    /// windows than they leave in: so both are kept until neither can change.
    open: std::collections::VecDeque<i64>,
    /// Number of the first open window.
    first: u64,
    closed: u64,
    squares: f64,
    worst: u64,
}

impl WindowGrid {
    fn add(&mut self, at_ns: u64, bytes: i64) {
        let number = at_ns / self.width_ns;
        // Due in a window that is closed: it left with those of the first that is open.
        let place = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if place >= self.open.len() {
            self.open.resize(place + 1, 0);
        }
        self.open[place] += bytes;
    }

    /// Nothing more is due or leaves before this moment.
    fn close_until(&mut self, at_ns: u64) {
        while (self.first + 1) * self.width_ns <= at_ns {
            let difference = self.open.pop_front().unwrap_or(0).unsigned_abs();
            self.first += 1;
            self.closed += 1;
            self.squares += (difference as f64).powi(2);
            self.worst = self.worst.max(difference);
        }
    }
}

impl PacingStats {
    /// # Errors
    /// None in practice: the histogram's bounds are constants.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        let grids = WINDOWS_US.map(|width| WindowGrid { width_ns: width * 1_000, ..WindowGrid::default() });
        // An hour is longer than any lateness that is borne.
        let lateness_ns = Histogram::new_with_bounds(1, 3_600_000_000_000, 2)?;
        Ok(Self { packets: 0, bytes: 0, last_bytes: 0, lateness_ns, grids })
    }

    /// A packet left; both times from the start, ns.
    #[inline]
    pub fn record_send(&mut self, due_ns: Option<u64>, at_ns: u64, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.last_bytes = u64::from(bytes);
        let Some(due_ns) = due_ns else { return };
        self.lateness_ns.saturating_record(at_ns.saturating_sub(due_ns).max(1));
        for grid in &mut self.grids {
            // In the same window, as nearly all are, both cancel.
            if due_ns / grid.width_ns != at_ns / grid.width_ns {
                grid.add(due_ns, -i64::from(bytes));
                grid.add(at_ns, i64::from(bytes));
            }
            grid.close_until(due_ns);
        }
    }

    /// Errors by width; none for a width of which no window was whole.
    pub fn window_deviations(&self, lasted_ns: u64) -> Vec<WindowDeviation> {
        let errors = self.grids.iter().map(|grid| {
            let mut grid = grid.clone();
            grid.close_until(lasted_ns);
            let due = self.bytes as f64 * grid.width_ns as f64 / lasted_ns as f64;
            WindowDeviation {
                width_us: grid.width_ns / 1_000,
                windows: grid.closed,
                rms_pct: (grid.squares / grid.closed as f64).sqrt() / due * 100.0,
                worst_pct: grid.worst as f64 / due * 100.0,
            }
        });
        errors.filter(|error| error.windows > 0 && self.bytes > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_in_time_have_no_error_and_late_ones_have_it_in_two_windows() {
        let mut account = PacingStats::new().unwrap();
        // A packet of 1,000 bytes each 100 us for 100 ms; one of them 5 ms late.
        for i in 0..1_000_u64 {
            let due = i * 100_000;
            let late = if i == 500 { 5_000_000 } else { 7 };
            account.record_send(Some(due), due + late, 1_000);
        }
        let errors = account.window_deviations(100_000_000);
        assert_eq!(errors.iter().map(|error| error.windows).collect::<Vec<_>>(), [100, 10, 1]);
        // Ten are due in a millisecond: one less in its own, one more in another.
        let [fine, middle, coarse] = errors[..] else { panic!("{errors:?}") };
        assert!((fine.worst_pct - 10.0).abs() < 1e-9, "{fine:?}");
        assert!((fine.rms_pct - (2.0_f64 / 100.0).sqrt() * 10.0).abs() < 1e-9, "{fine:?}");
        // Both lie in the same 10 ms and 100 ms.
        assert_eq!((middle.worst_pct, coarse.worst_pct), (0.0, 0.0));
        assert_eq!(account.lateness_ns.max() / 100_000, 50);
        assert_eq!((account.packets, account.bytes), (1_000, 1_000_000));
    }

    #[test]
    fn top_speed_has_neither_lateness_nor_errors_by_window() {
        let mut account = PacingStats::new().unwrap();
        account.record_send(None, 5, 60);
        assert!(account.lateness_ns.is_empty() && account.packets == 1);
        assert!(account.window_deviations(1_000_000).iter().all(|error| error.worst_pct == 0.0));
    }
}
