//! Log of the run: the lines that its directory will hold.

use hdrhistogram::Histogram;
use toll_record::TrialLine;

pub trait RunLog {
    /// While on, nothing of a trial reaches the run.
    fn set_dry_run(&mut self, on: bool);
    fn write_trial(&mut self, line: TrialLine);
    fn write_latency(&mut self, arm: &str, trial: u32, begin_us: u64, width_us: u64, of: Box<Histogram<u64>>);
    /// Why the run cannot go on.
    fn write_cut(&mut self, reason: &str);
}
