//! Example pages for work on the viewer, without a server and without waiting for a run.
//!
//! `cargo run -p toll --example fixture_pages -- DIR` writes run directories in the real format and the page
//! of each: same seed, same bytes. The figures are invented, and each page says so.

mod analysis;
mod loss;
mod recording;
mod scene;

use scene::Shape;
use std::path::{Path, PathBuf};
use toll_analysis as analyse;
use toll_net::pcap::profile::json::build_document;
use toll_record::{RunDir, RunResult};

/// An arm name that would run if any of it were treated as markup.
const HOSTILE: &str = "<img src=x onerror=\"document.title='broken in'\">";

fn main() -> anyhow::Result<()> {
    let Some(out) = std::env::args_os().nth(1).map(PathBuf::from) else {
        anyhow::bail!("where to? Give a directory: cargo run -p toll --example fixture_pages -- DIR");
    };
    let quick = Shape { rounds: 6, window_s: 1.2, settle_s: 0.3, gap_s: 0.0, ..Shape::default() };
    let standard = Shape { rounds: 12, window_s: 6.0, settle_s: 2.5, ..quick.clone() };
    let faithful = Shape { rounds: 1, window_s: 300.0, settle_s: 5.0, gap_s: 60.0, ..quick.clone() };
    let hostile = Shape { hostile: Some(HOSTILE), rounds: 3, ..quick.clone() };
    let other = Shape { seed: 8, host: "8-core aarch64 server", cpus: 8, effect: 0.6, ..quick.clone() };
    let died = Shape { dies_after_s: Some(35.0), ..quick.clone() };

    let quick = write(&out, "quick", &quick)?;
    page(&out, "quick", &[&quick])?;
    let standard = write(&out, "standard", &standard)?;
    page(&out, "standard", &[&standard])?;
    let faithful = write(&out, "faithful", &faithful)?;
    page(&out, "faithful", &[&faithful])?;
    let hostile = write(&out, "hostile", &hostile)?;
    page(&out, "hostile", &[&hostile])?;
    let crashed = write(&out, "crashed", &died)?;
    page(&out, "crashed", &[&crashed])?;
    let other = write(&out, "other-host", &other)?;
    page(&out, "two-hosts", &[&quick, &other])?;

    let old = loss::Platform { kernel: "6.1.0", libpcap: "1.10.3", ring: "2048", times: 1.0 };
    let new = loss::Platform { kernel: "6.18.1", libpcap: "1.10.5", ring: "65536", times: 0.3 };
    let old = loss::write(&out.join("loss"), &old)?;
    let new = loss::write(&out.join("loss-new"), &new)?;
    page(&out, "loss", &[&old])?;
    page(&out, "platforms", &[&old, &new])?;
    let captures = [loss::capture("http.pcap", 90), loss::capture(HOSTILE, 5)];
    let html = toll_report::html::captures(&build_document(&captures))?;
    Ok(std::fs::write(out.join("captures.html"), html)?)
}

/// A run and its result: invented, except for the run that died, which is analysed.
type WrittenRun = (RunDir, RunResult);

fn write(out: &Path, name: &str, shape: &Shape) -> anyhow::Result<WrittenRun> {
    let root = out.join(name);
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    let recorded = recording::write(&root, shape)?;
    let run = RunDir::open(&root)?;
    let result = match shape.dies_after_s {
        None => analysis::result(shape, &recorded)?,
        Some(_) => analyse::analyse_run_dir(&run)?,
    };
    Ok((run, result))
}

fn page(out: &Path, name: &str, made: &[&WrittenRun]) -> anyhow::Result<()> {
    let (runs, results): (Vec<RunDir>, Vec<RunResult>) = made.iter().copied().cloned().unzip();
    let html = toll_report::html::html(&runs, &results)?;
    let path = out.join(format!("{name}.html"));
    std::fs::write(&path, &html)?;
    println!("{} {} bytes", path.display(), html.len());
    Ok(())
}
