//! Rows and columns of a run's table.
//!
//! Baseline first, then by rising overhead. The forms (text, Markdown) only draw it.

use toll_analysis::{estimate_format, harm, judged_outcome, judged_outcome_name};
use toll_record::{ArmResult, Definition, Outcome, Role, RunResult, catalogue};

/// Columns before the outcomes: a variant's name, its description, and the verdict on it.
pub const LEADING_COLUMNS: usize = 3;
/// Outcomes with an interval beside the estimate. The others have the estimate alone.
pub const INTERVAL_COLUMNS: usize = 2;

pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Row>,
}

/// One variant.
pub struct Row {
    pub cells: Vec<String>,
}

impl Table {
    pub fn of(run: &RunResult) -> Self {
        let columns = columns(run);
        let mut arms: Vec<&ArmResult> = run.arms.iter().filter(|arm| arm.windows > 0).collect();
        // A stable sort: equals stay in the order of the plan.
        arms.sort_by(|a, b| {
            let ((group_a, harm_a), (group_b, harm_b)) = (rank(run, a), rank(run, b));
            group_a.cmp(&group_b).then(harm_a.total_cmp(&harm_b))
        });
        let heads = columns.iter().map(|column| column.column_title().to_owned());
        Table {
            head: ["variant".to_owned(), "description".to_owned(), "verdict".to_owned()]
                .into_iter()
                .chain(heads)
                .collect(),
            rows: arms.into_iter().map(|arm| row(run, arm, &columns)).collect(),
        }
    }
}

/// Outcomes that the run shows and some arm has. The primary one is always among them.
pub fn columns(run: &RunResult) -> Vec<&Definition> {
    let primary = Some(&run.primary).filter(|primary| !run.columns.contains(primary));
    let has = |name: &&String| run.arms.iter().any(|arm| shown_outcome(run, arm, name).is_some());
    let names = primary.into_iter().chain(&run.columns).filter(has);
    names.filter_map(|name| catalogue::find_definition(&run.definitions, name)).collect()
}

/// An arm's value in a column. The primary outcome's column shows the arm's judged outcome.
fn shown_outcome<'a>(run: &RunResult, arm: &'a ArmResult, column: &'a str) -> Option<(&'a str, &'a Outcome)> {
    let name = match &arm.judged_by {
        Some(own) if column == run.primary && !arm.outcomes.contains_key(column) => own,
        _ => column,
    };
    Some((name, arm.outcomes.get(name)?))
}

/// Sort key: arms follow their baseline, by overhead.
fn rank(run: &RunResult, arm: &ArmResult) -> (usize, f64) {
    let position = |name: &str| match name {
        name if name == run.baseline => 0,
        name => run.arms.iter().position(|a| a.name == name).map_or(usize::MAX, |i| i + 1),
    };
    match &arm.against {
        None if arm.role == Role::Baseline => (position(&arm.name), f64::NEG_INFINITY),
        against => {
            let group = position(against.as_deref().unwrap_or(&run.baseline));
            (group, judged_outcome(run, arm).map_or(f64::INFINITY, harm))
        }
    }
}

/// Suffix for the baseline's name if some arms are compared with another arm.
pub fn other_reference_suffix(run: &RunResult) -> &'static str {
    let another = |arm: &ArmResult| arm.windows > 0 && other_reference(run, arm).is_some();
    if run.arms.iter().any(another) { ", or the variant that a row names," } else { "" }
}

fn other_reference<'a>(run: &RunResult, arm: &'a ArmResult) -> Option<&'a str> {
    arm.against.as_deref().filter(|name| *name != run.baseline)
}

fn row(run: &RunResult, arm: &ArmResult, columns: &[&Definition]) -> Row {
    let mut title = match arm.role {
        Role::Aa if !arm.title.contains("A/A") => format!("A/A: {}", arm.title),
        _ => arm.title.clone(),
    };
    if let Some(reference) = other_reference(run, arm) {
        title = format!("vs {reference}: {title}");
    }
    let verdict = judged_outcome(run, arm).map_or("", |outcome| {
        estimate_format::verdict_word(run, judged_outcome_name(run, arm), outcome.verdict)
    });
    let mut cells = vec![arm.name.clone(), title, verdict.to_owned()];
    for (i, column) in columns.iter().enumerate() {
        let Some((name, outcome)) = shown_outcome(run, arm, &column.name) else {
            cells.push("-".to_owned());
            continue;
        };
        let mut cell = if i < INTERVAL_COLUMNS {
            estimate_format::format_cell(outcome)
        } else {
            estimate_format::format_brief(outcome)
        };
        if name != column.name {
            let own = catalogue::find_definition(&run.definitions, judged_outcome_name(run, arm));
            cell = format!("{cell} {}", own.map_or(name, Definition::column_title));
        }
        cells.push(cell);
    }
    Row { cells }
}
