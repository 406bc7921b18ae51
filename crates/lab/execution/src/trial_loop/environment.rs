//! Environment of the trial loop: the small traits below, together.
//!
//! `host_env.rs` is the host, `sim_env.rs` the simulation of the tests. The order of steps is the trial loop's alone.

use super::clock::Clock;
use super::host_probe::HostProbe;
use super::load::LoadControl;
use super::meter::Meter;
use super::run_log::RunLog;
use super::treatments::TreatmentControl;
use super::ui::Ui;
use crate::guard::Guard;

/// All that a trial needs. At any time at most one load and one treatment are on.
pub trait Environment: Clock + TreatmentControl + HostProbe + RunLog + Ui {
    /// `None`: nothing here generates load, such as on a server under its own traffic.
    fn load(&mut self) -> Option<&mut dyn LoadControl> {
        None
    }

    /// `None`: nothing counts work now.
    fn meter(&mut self) -> Option<&mut dyn Meter> {
        None
    }

    /// `None`: nothing but its own errors and the user ends the run.
    fn guard(&mut self) -> Option<&mut dyn Guard> {
        None
    }
}
