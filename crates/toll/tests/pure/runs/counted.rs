//! Test of a stored run on the counted clock: parties add up, and no figure is called seconds.

use std::path::{Path, PathBuf};
use toll_analysis::both_clocks;
use toll_record::{RunDir, RunResult};
use toll_report::text::{ColourMode, Detail, text};

fn stored(run: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs").join(run)
}

fn analysed(run: &Path) -> RunResult {
    toll_analysis::analyse_run_dir(&RunDir::open(run).unwrap()).unwrap()
}

fn counted_run() -> RunResult {
    analysed(&stored("2026-11-25-2-core-vm/tcpdump-impact-exact"))
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
    assert_eq!(arms, 29);
}

#[test]
fn a_counted_report_says_instructions_and_nothing_of_seconds_but_the_time_that_it_took() {
    let report = text(&counted_run(), ColourMode::Plain, Detail::All);
    for says in ["instructions, not time", "Instructions per query, by party", "G instr", "k instr"] {
        assert!(report.contains(says), "{says}\n{report}");
    }
    assert!(!report.contains("Stalls") && !report.contains("pause"), "{report}");
    for line in report.lines().filter(|line| !line.trim_start().starts_with("measured")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let seconds = words.windows(2).find(|pair| {
            let is_number = pair[0].trim_start_matches(['+', '-']).parse::<f64>().is_ok();
            is_number && matches!(pair[1].trim_end_matches([',', ';', '.']), "s" | "ms" | "us")
        });
        assert_eq!(seconds, None, "{line}");
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn a_run_on_both_clocks_lays_work_and_time_of_the_same_arms_side_by_side() {
    let (counted, measured) =
        (stored("2026-11-25-2-core-vm/tcpdump-impact-exact"), stored("2026-11-22-4-core-vm/hour"));
    let both = tempfile::tempdir().unwrap();
    copy_files(&counted, both.path());
    copy_files(&measured, &both.path().join(toll_record::MEASURED));
    let result = analysed(both.path());
    let chart = result.charts.iter().find(|chart| chart.id == both_clocks::CHART).unwrap();
    let at = chart.x.categories.iter().position(|arm| arm == "B").unwrap() as f64;
    let shown = |line: &str| {
        let line = chart.series.iter().find(|series| series.name == line).unwrap();
        line.points.iter().find(|point| point.0 == at).unwrap().1
    };
    let of_run = |run: &Path, outcome: &str| {
        let result = analysed(run);
        let arm = result.arms.iter().find(|arm| arm.name == "B").unwrap();
        arm.outcomes[outcome].toll_pct.unwrap()
    };
    assert_eq!(shown("work"), of_run(&counted, "cpu_us_per_query"));
    assert_eq!(shown("time"), of_run(&measured, "latency_us_mean"));
    assert_eq!(shown("time, p99"), of_run(&measured, "latency_us_p99"));
    assert!(!chart.x.categories.contains(&"none".to_owned()));
    let report = text(&result, ColourMode::Plain, Detail::All);
    let row = report
        .lines()
        .skip_while(|line| !line.starts_with("Work and time"))
        .find(|line| line.starts_with("B "));
    assert!(row.is_some_and(|row| row.matches('[').count() == 3), "{report}");
    // Without the measured part there is no such chart.
    assert!(counted_run().charts.iter().all(|chart| chart.id != both_clocks::CHART));
}
