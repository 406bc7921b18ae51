//! Test of a stored run on the counted clock: parties add up, and no figure is called seconds.

use std::path::{Path, PathBuf};
use toll_record::{RunDir, RunResult};
use toll_report::text::{ColourMode, text};

fn counted_run() -> RunResult {
    let run: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-25-2-core-vm/tcpdump-impact-exact");
    toll_analysis::analyse_run_dir(&RunDir::open(run).unwrap()).unwrap()
}

#[test]
fn instructions_of_all_parties_add_up_to_the_whole_of_a_query() {
    let result = counted_run();
    let parts =
        ["server", "driver", "treatment", "toll", "rest"].map(|party| format!("{party}_cpu_us_per_query"));
    let mut arms = 0;
    for arm in result.arms.iter().filter(|arm| arm.windows > 0) {
        let mean = |name: &str| arm.outcomes.get(name).map_or(0.0, |outcome| outcome.mean);
        let (sum, whole) = (parts.iter().map(|name| mean(name)).sum::<f64>(), mean("cpu_us_per_query"));
        assert!((sum / whole - 1.0).abs() < 0.01, "{}: {sum} of {whole}", arm.name);
        arms += 1;
    }
    assert_eq!(arms, 18);
}

#[test]
fn a_counted_report_says_instructions_and_nothing_of_seconds_but_the_time_that_it_took() {
    let report = text(&counted_run(), ColourMode::Plain);
    for says in ["instructions, not time", "Instructions per query, by party", "G instr", "k instr"] {
        assert!(report.contains(says), "{says}\n{report}");
    }
    for line in report.lines().filter(|line| !line.trim_start().starts_with("measured")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let seconds = words.windows(2).find(|pair| {
            let is_number = pair[0].trim_start_matches(['+', '-']).parse::<f64>().is_ok();
            is_number && matches!(pair[1].trim_end_matches([',', ';', '.']), "s" | "ms" | "us")
        });
        assert_eq!(seconds, None, "{line}");
    }
}
