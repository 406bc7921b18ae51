//! Benchmark: duration of the analysis of a run as long as the document's.
//!
//! The input is what a `faithful` and a `standard` run leave. The first has seventeen arms of 5 minutes with
//! a minute between them, in one round. The second has twelve rounds of 10 s windows. Prints; asserts nothing
//! about time.

#[path = "../../../toll/tests/pure/runs/synthetic.rs"]
mod synthetic;

use std::time::Instant;
use synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_record::{Role, RunDir};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arms = SyntheticArm::usual();
    for name in ["A", "D", "E", "F", "G", "H", "I", "J", "L", "M"] {
        arms.push(SyntheticArm::new(name, Role::Treatment, 1.1));
    }
    for (profile, rounds, window_s, gap_s) in [("faithful", 1, 300.0, 60.0), ("standard", 12, 10.0, 1.0)] {
        let mut host = SyntheticRun::with(1, rounds, arms.clone());
        (host.window_s, host.gap_s, host.settle_s) = (window_s, gap_s, 1.0);
        let dir = tempfile::tempdir()?;
        host.write(dir.path())?;
        let lines = RunDir::open(dir.path())?.samples()?.len();
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let begun = Instant::now();
            let result = analyse::analyse_run_dir(&RunDir::open(dir.path())?)?;
            best = best.min(begun.elapsed().as_secs_f64());
            assert!(result.complete);
        }
        println!("{profile}: {lines} samples, {} windows: {best:.3} s (best of 5)", rounds * 17);
    }
    Ok(())
}
