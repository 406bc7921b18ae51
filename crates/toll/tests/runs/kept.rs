//! Do the runs that are kept in the repository say what this toll says of them?

use std::path::{Path, PathBuf};
use toll_analysis as analyse;
use toll_record::RunDir;
use toll_report::text::{Ink, text};
use toll_report::{json, markdown};

fn kept() -> Vec<PathBuf> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs");
    let directories = |at: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(at).expect("kept runs").flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    };
    let mut kept: Vec<PathBuf> = directories(&runs).iter().flat_map(|host| directories(host)).collect();
    kept.retain(|run| run.join("plan.json").is_file());
    kept.sort();
    kept
}

#[test]
fn kept_runs_are_told_as_this_toll_tells_them() {
    let runs = kept();
    assert!(runs.len() >= 7, "{runs:?}");
    let mut old = Vec::new();
    for run in runs {
        let result = analyse::run(&RunDir::open(&run).unwrap()).unwrap();
        assert!(result.complete, "{} is whole", run.display());
        let forms = [
            ("result.json", json::json(std::slice::from_ref(&result), None).unwrap()),
            ("report.txt", text(&result, Ink::Plain)),
            ("report.md", markdown::markdown(&result)),
        ];
        for (file, says) in forms {
            let path = run.join(file);
            if path.exists() && std::fs::read_to_string(&path).unwrap() != says {
                old.push(path);
            }
        }
    }
    assert!(old.is_empty(), "renew them with scripts/renew-runs and look at what changed: {old:#?}");
}

#[test]
fn a_run_of_format_1_is_read_by_the_outcomes_that_it_was_measured_by() {
    let run =
        RunDir::open(kept().into_iter().find(|run| run.ends_with("socket-vs-tcp-dump")).unwrap()).unwrap();
    let plan = run.plan().unwrap();
    assert_eq!((plan.format, plan.outcomes.len(), plan.columns.len()), (1, 0, 0));
    let result = analyse::run(&run).unwrap();
    assert_eq!(result.format, toll_record::FORMAT);
    let [unix_64, dump_unix, dump_tcp] = &result.arms[..] else { panic!("{:?}", result.arms) };
    assert_eq!((&unix_64.judged_by, &dump_tcp.judged_by), (&None, &dump_unix.judged_by));
    let judged_by = dump_tcp.judged_by.as_ref().unwrap();
    assert!(dump_tcp.outcomes[judged_by].toll_pct.is_some());
    let known = result.definitions.iter().find(|outcome| outcome.name == *judged_by).unwrap();
    assert_eq!((known.title.as_str(), known.higher_is_better), ("time until done", false));
}
