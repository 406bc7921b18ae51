//! Run directory format: the types shared by writers and readers.
//!
//! Every serialised type here is a promise (see `docs/reference/run-format.md`): a field may be added, never renamed or
//! given another unit, without raising [`FORMAT`]. Never interprets data: no estimates, no verdicts.
//!
//! A reader requires a field unless a writer leaves it out when empty, a scenario may leave it out, or a stored run
//! lacks it ([`Workload::reconnect_every`]): what lacks another was not written by toll.

mod artefact;
pub mod catalogue;
mod chart;
mod design;
mod host;
mod latency;
mod limit;
mod outcome;
mod packet_accounting;
mod pilot;
mod plan;
mod result;
mod run_dir;
mod sample;
mod series;
mod setup;
mod spread;
mod trial;

#[cfg(test)]
mod typescript;

pub use artefact::{Artefact, Held, PacketCounts, QueryCount};
pub use chart::{Axis, Chart, ChartKind, ChartPoint, ChartSeries, Charted, Overlay, Platform};
pub use design::{Design, QueryClass};
pub use host::{CountedClock, Host, Tool};
pub use latency::{LatencyError, LatencyLog, LatencyWindow, latency_histogram};
pub use limit::{Limit, LimitResult};
pub use outcome::{
    Aggregate, ArtefactColumn, Asker, Compare, Contrast, Definition, LoadColumn, Pareto, Party,
    ProcessColumn, Source, StagesColumn, TrialColumn, Zeros,
};
pub use packet_accounting::{Ledger, LedgerStage, Losses, Sent, Stage};
pub use pilot::{Apart, Long, Noise, Pilot, Switching};
pub use plan::{
    Arm, ArtefactKind, Clock, Counted, HeldIn, Meter, Needs, Plan, Process, Role, RowUpdate, Server, Setting,
    Signal, Treatment, Window, Workload,
};
pub use result::{
    AaCheck, ArmResult, ArtefactResult, Beside, ContrastResult, ControlCheck, Dose, DoseKind, DoseLine,
    LongWindows, Mde, Outcome, ParetoArm, ParetoResult, Pause, Pooled, PooledArm, RunResult, SelfCost,
    StallSpan, StallTotals, Verdict, Warning, WhileOff,
};
pub use run_dir::{
    CAPTURES_FILE, MEASURED, ReadError, RunDir, RunWriter, read_plan, temporary_path, write_json,
};
pub use sample::{
    Bin, ClassSample, ClassTimes, Cut, Footprint, HostSample, OutputSample, OwnSample, PressureSample,
    Sample, Second, ServerSample, Tick, by_code,
};
pub use setup::{DataSetup, Limits, RigStep, SandboxServer, SandboxSetup, Setup};
pub use spread::Spread;
pub use trial::{Cpu, ProcessEnd, Step, TrialLine};

/// Version of the run format. Readers refuse a newer one, and read older ones from [`OLDEST_FORMAT`] on.
pub const FORMAT: u32 = 3;
pub const OLDEST_FORMAT: u32 = 2;
