//! Restart detector: checks that the server is still the same process.

use crate::treatment::AdminSession;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use toll_mysql::Target;
use toll_server::find_local;
use toll_sys::cancel::CancelToken;
use toll_sys::clock;
use toll_sys::process::ProcessId;
use toll_sys::server_process::ServerProcess;

/// The server process of a run.
#[derive(Debug)]
pub struct RestartDetector {
    /// Absent for a remote server, or if toll may not inspect the process.
    process: Option<ProcessId>,
    /// Target and variables that identify the process that replaces it. Absent for a sandbox, which is not restarted.
    replacement: Option<(Target, BTreeMap<String, String>)>,
    /// Start of the server, seconds on the monotonic clock.
    started_s: Option<f64>,
}

/// Tolerance of a start time, seconds: the server's clock has whole seconds.
const SAME_START_S: f64 = 2.0;
/// Time limit for a restart, seconds: a supervisor restarts a crashed server, which may have to recover.
const RESTART_TIMEOUT_S: f64 = 120.0;
const POLL_EVERY_S: f64 = 0.5;

impl RestartDetector {
    pub fn sandbox(process: ProcessId) -> Self {
        Self { process: Some(process), replacement: None, started_s: None }
    }

    pub fn external(
        local: Option<ServerProcess>,
        target: Target,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self {
            process: local.map(|local| local.process),
            replacement: Some((target, variables)),
            started_s: None,
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.and_then(|process| u32::try_from(process.pid).ok())
    }

    /// True if the server is another process than at the last call. Waits for one that is being restarted.
    ///
    /// # Errors
    /// The server does not come back in time.
    pub fn has_restarted(&mut self, admin: &mut AdminSession, cancel: &CancelToken) -> anyhow::Result<bool> {
        let uptime_s = self.wait_for_answer(admin, cancel)?;
        let started_s = clock::mono_us() as f64 / 1e6 - uptime_s as f64;
        let before = self.started_s.replace(started_s);
        let restarted = before.is_some_and(|before| started_s > before + SAME_START_S)
            || self.process.is_some_and(|process| !process.is_alive());
        if restarted && let Some((target, variables)) = &self.replacement {
            self.process = find_local(target, variables).map(|local| local.process);
        }
        Ok(restarted)
    }

    fn wait_for_answer(&self, admin: &mut AdminSession, cancel: &CancelToken) -> anyhow::Result<u64> {
        const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";
        let asked_us = clock::mono_us();
        let mut told = false;
        loop {
            let error = match admin.query_pairs(UPTIME) {
                Ok(pairs) => {
                    let uptime = pairs.into_values().next().and_then(|text| text.parse().ok());
                    return uptime.context("the server does not say for how long it has been up");
                }
                Err(error) => error,
            };
            let waited_s = (clock::mono_us() - asked_us) as f64 / 1e6;
            let is_another = matches!(error.downcast_ref(), Some(toll_mysql::Error::AnotherServer { .. }));
            if self.replacement.is_none() || is_another || waited_s > RESTART_TIMEOUT_S {
                return Err(error).context("the server does not answer");
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(
                    "the server does not answer: waiting up to {RESTART_TIMEOUT_S:.0} s for it to come back"
                );
            }
            if !cancel.sleep(POLL_EVERY_S) {
                bail!("interrupted while the server did not answer");
            }
        }
    }
}
