//! Is it still the same server process, and if not, which is it now?

use crate::treatment::Admin;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use toll_mysql::Target;
use toll_server::find_local;
use toll_sys::interrupt::Interrupt;
use toll_sys::process::ProcessId;
use toll_sys::server_process::Local;
use toll_sys::{clock, tell};

/// The server of a run.
#[derive(Debug)]
pub struct Watched {
    /// Absent for a server on another host, or whose process toll may not look at.
    process: Option<ProcessId>,
    /// How to find the process that takes its place; a sandbox is not started again.
    again: Option<(Target, BTreeMap<String, String>)>,
    /// When it started, on the monotonic clock.
    started_s: Option<f64>,
}

/// The server's clock of whole seconds and ours do not tick together.
const SAME_START_S: f64 = 2.0;
/// A crashed server is started again by its supervisor within seconds, and may have to recover.
const BACK_WITHIN_S: f64 = 120.0;
const LOOK_EVERY_S: f64 = 0.5;

impl Watched {
    pub fn sandbox(process: ProcessId) -> Self {
        Self { process: Some(process), again: None, started_s: None }
    }

    pub fn external(local: Option<Local>, target: Target, variables: BTreeMap<String, String>) -> Self {
        Self { process: local.map(|local| local.process), again: Some((target, variables)), started_s: None }
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.and_then(|process| u32::try_from(process.pid).ok())
    }

    /// True where it is not the process that it was when this was asked last: waits for one that is
    /// being started again. An error where none comes.
    pub fn restarted(&mut self, admin: &mut Admin, interrupt: &Interrupt) -> anyhow::Result<bool> {
        let uptime_s = self.wait_for_answer(admin, interrupt)?;
        let started_s = clock::mono_us() as f64 / 1e6 - uptime_s as f64;
        let before = self.started_s.replace(started_s);
        let restarted = before.is_some_and(|before| started_s > before + SAME_START_S)
            || self.process.is_some_and(|process| !process.alive());
        if restarted && let Some((target, variables)) = &self.again {
            self.process = find_local(target, variables).map(|local| local.process);
        }
        Ok(restarted)
    }

    fn wait_for_answer(&self, admin: &mut Admin, interrupt: &Interrupt) -> anyhow::Result<u64> {
        const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";
        let asked_us = clock::mono_us();
        let mut told = false;
        loop {
            let error = match admin.pairs(UPTIME) {
                Ok(pairs) => {
                    let uptime = pairs.into_values().next().and_then(|text| text.parse().ok());
                    return uptime.context("the server does not say for how long it has been up");
                }
                Err(error) => error,
            };
            let waited_s = (clock::mono_us() - asked_us) as f64 / 1e6;
            if self.again.is_none() || waited_s > BACK_WITHIN_S {
                return Err(error).context("the server does not answer");
            }
            if !std::mem::replace(&mut told, true) {
                tell!(
                    "toll: the server does not answer: waiting up to {BACK_WITHIN_S:.0} s for it to come back"
                );
            }
            if !interrupt.sleep(LOOK_EVERY_S) {
                bail!("interrupted while the server did not answer");
            }
        }
    }
}
