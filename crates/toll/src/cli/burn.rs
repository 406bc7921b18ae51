//! `toll burn`: a process whose cost is known, for the positive control.

use crate::child;
use crate::clock;
use crate::treatment::cpu_of_process_us;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Burn {
    /// Share of one CPU to use, above 0 and at most 1
    #[arg(long, value_parser = share)]
    share: f64,
}

/// Long against a scheduler's slice, short against any window.
const PERIOD_US: u64 = 20_000;

/// Spins until this process has had its share of the time gone by, then sleeps a little.
///
/// What was missed while others ran is made up for, so the share holds over any window, as long
/// as the scheduler grants it: with root it asks for precedence.
pub fn run(arguments: Burn) -> anyhow::Result<ExitCode> {
    let own = std::process::id();
    raise_priority(own);
    let begun = clock::mono_us();
    let used_at_begin = cpu_of_process_us(own);
    loop {
        let due = ((clock::mono_us() - begun) as f64 * arguments.share) as u64;
        while cpu_of_process_us(own) - used_at_begin < due {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(PERIOD_US));
    }
}

/// `renice` changes one value that belongs to this process alone; without root it changes nothing.
fn raise_priority(own: u32) {
    let _ = child::command("renice")
        .args(["-n", "-19", "-p", &own.to_string()])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share lies above 0 and is at most 1, such as 0.25".into()),
    }
}
