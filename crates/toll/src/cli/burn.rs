//! Command `toll burn`: uses a known share of CPU time, as a positive control.

use anyhow::Context;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use toll_sys::units::Percent;
use toll_sys::{child_process, clock};

#[derive(Debug, Args)]
pub struct Burn {
    /// Share of the host's CPU time to use, above 0% and at most 100%: 5%
    #[arg(value_name = "SHARE", value_parser = dose)]
    dose: Percent,
}

/// Period of the duty cycle, microseconds: long against a scheduler's slice, short against any window.
const PERIOD_US: u64 = 20_000;

/// Starts as many threads as the dose needs CPUs, each with its part of it.
pub fn run(arguments: Burn) -> anyhow::Result<ExitCode> {
    // Threads inherit it.
    raise_priority(std::process::id());
    let cpus = arguments.dose.0 / 100.0 * toll_sys::cpu::available();
    let threads = cpus.ceil().max(1.0);
    let share = cpus / threads;
    for _ in 1..threads as usize {
        std::thread::Builder::new().spawn(move || spin(share)).context("cannot start a thread")?;
    }
    spin(share)
}

/// Spins until this thread has used its share of the elapsed time, then sleeps a little.
///
/// Time lost to other threads is made up for, so that the share holds over any window, as far as the
/// scheduler allows. With root it raises its priority.
fn spin(share: f64) -> ! {
    let (begun, used_at_begin) = (clock::mono_us(), clock::thread_cpu_us());
    loop {
        let due = ((clock::mono_us() - begun) as f64 * share) as u64;
        while clock::thread_cpu_us() - used_at_begin < due {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(PERIOD_US));
    }
}

/// Raises the priority by `renice`. It affects this process alone; without root it has no effect.
fn raise_priority(own: u32) {
    let _ = child_process::clean_env_command("renice")
        .args(["-n", "-19", "-p", &own.to_string()])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
}

fn dose(text: &str) -> Result<Percent, String> {
    match text.parse::<Percent>() {
        Ok(dose) if dose.0 > 0.0 && dose.0 <= 100.0 => Ok(dose),
        _ => Err("a dose lies above 0% and is at most 100% of the host's CPU time, such as 5%".into()),
    }
}
