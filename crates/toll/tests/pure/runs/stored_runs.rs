//! Tests of the reports of the runs stored in the repository.

use std::path::{Path, PathBuf};
use std::process::Command;
use toll_analysis as analyse;
use toll_record::RunDir;
use toll_report::text::{ColourMode, Detail, text};
use toll_report::{json, markdown};

/// Small runs of different kinds: loads compared, commands that end by themselves, packets over a link.
const SMALL: [&str; 3] = [
    "2026-11-21-2-core-vm/quick",
    "2026-11-21-2-core-vm/socket-vs-tcp-dump",
    "2026-11-22-4-core-vm/zero-loss-busy",
];

/// Result with all digits, compressed: plain it is larger than the rest of a small run.
const RESULT: &str = "result.json.zst";

fn runs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs")
}

fn all() -> Vec<PathBuf> {
    let directories = |at: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(at).expect("stored runs").flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    };
    let mut all: Vec<PathBuf> = directories(&runs()).iter().flat_map(|host| directories(host)).collect();
    all.retain(|run| run.join("plan.json").is_file());
    all.sort();
    all
}

/// Content of a report, decompressed.
fn stored(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|ext| ext == "zst") {
        zstd::decode_all(&bytes[..]).unwrap()
    } else {
        bytes
    }
}

/// Fails if the report of a run differs from the one stored beside it.
fn check(runs: &[PathBuf]) {
    let mut old = Vec::new();
    for run in runs {
        let result = analyse::analyse_run_dir(&RunDir::open(run).unwrap()).unwrap();
        // One that its breaker ended is kept as it ended.
        let said = text(&result, ColourMode::Plain, Detail::All);
        assert!(result.complete || said.contains("the breaker tripped"), "{} is whole", run.display());
        let forms = [
            (RESULT, json::json(std::slice::from_ref(&result), None).unwrap()),
            ("report.txt", said),
            ("report.md", markdown::markdown(&result)),
        ];
        for (file, says) in forms {
            let path = run.join(file);
            if path.exists() && stored(&path) != says.as_bytes() {
                old.push(path);
            }
        }
    }
    assert!(old.is_empty(), "renew them with scripts/renew-runs and look at what changed: {old:#?}");
}

#[test]
fn commands_of_stored_runs_name_no_directory_of_the_host_that_measured() {
    let command = |run: &PathBuf| RunDir::open(run).unwrap().plan().unwrap().command;
    let absolute: Vec<String> =
        all().iter().flat_map(command).filter(|word| Path::new(word).is_absolute()).collect();
    assert!(absolute.is_empty(), "scripts/compact-runs leaves their file names: {absolute:#?}");
}

#[test]
fn small_stored_runs_have_the_reports_that_this_toll_writes() {
    let small = SMALL.map(|run| runs().join(run));
    assert!(small.iter().all(|run| run.join(RESULT).is_file()), "compared to the last digit");
    check(&small);
}

#[test]
fn system_all_stored_runs_have_the_reports_that_this_toll_writes() {
    let all = all();
    assert!(all.len() >= 7, "{all:?}");
    check(&all);
}

#[test]
fn a_bound_on_a_stored_run_takes_its_own_names_and_those_of_today() {
    let run = runs().join("2026-11-21-2-core-vm/quick");
    for name in ["B", "tcpdump-file"] {
        let mut toll = Command::new(env!("CARGO_BIN_EXE_toll"));
        let bound = format!("{name}.qps<-90%");
        let judged = toll.arg("report").arg(&run).args(["--fail-if", &bound]).output().unwrap();
        let said = String::from_utf8_lossy(&judged.stderr).into_owned();
        assert!(judged.status.success() && said.contains("bound B.qps<-90% passed"), "{said}");
    }
}

#[test]
fn arms_without_a_load_are_judged_by_the_time_that_they_took() {
    let run = RunDir::open(runs().join("2026-11-21-2-core-vm/socket-vs-tcp-dump")).unwrap();
    let result = analyse::analyse_run_dir(&run).unwrap();
    let [unix_64, dump_unix, dump_tcp] = &result.arms[..] else { panic!("{:?}", result.arms) };
    assert_eq!((&unix_64.judged_by, &dump_tcp.judged_by), (&None, &dump_unix.judged_by));
    let judged_by = dump_tcp.judged_by.as_ref().unwrap();
    assert!(dump_tcp.outcomes[judged_by].toll_pct.is_some());
    let known = result.definitions.iter().find(|outcome| outcome.name == *judged_by).unwrap();
    assert_eq!((known.title.as_str(), known.higher_is_better), ("time until done", false));
}
