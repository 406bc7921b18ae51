//! Instructions per query by party, of a counted run: who does the work, in the baseline and in each arm.

use toll_record::{Aggregate, ArmResult, Definition, Party, RunResult, Source};
use toll_sys::number_format;

/// Parties in the order of columns, with their heads.
const PARTIES: [(Party, &str); 7] = [
    (Party::Host, "all"),
    (Party::Server, "server"),
    (Party::Driver, "driver"),
    (Party::Treatment, "treatment"),
    (Party::Irq, "interrupts"),
    (Party::Rest, "kernel"),
    (Party::Toll, "toll"),
];

/// Lines of the table, its head first; empty for a run on the real clock, or without queries of a load.
pub fn party_lines(run: &RunResult) -> Vec<String> {
    let columns: Vec<(&Definition, &str)> =
        PARTIES.iter().filter_map(|(party, head)| Some((definition(run, *party)?, *head))).collect();
    let has_some =
        |arm: &ArmResult| columns.iter().any(|(column, _)| arm.outcomes.contains_key(&column.name));
    if run.host.counted.is_none() || !run.arms.iter().any(has_some) {
        return Vec::new();
    }
    let cell = |text: &str| format!(" {text:>11}");
    let name_width = run.arms.iter().map(|arm| arm.name.len()).max().unwrap_or(0).max("variant".len());
    let mut lines =
        vec![columns.iter().fold(format!("{:name_width$}", "variant"), |line, (_, head)| line + &cell(head))];
    for arm in run.arms.iter().filter(|arm| arm.windows > 0) {
        let mut line = format!("{:name_width$}", arm.name);
        for (definition, _) in &columns {
            let mean = arm.outcomes.get(&definition.name).map(|outcome| outcome.mean);
            // A microsecond is a thousand instructions.
            let text = mean.map_or_else(|| "-".to_owned(), |us| number_format::format_grouped(us * 1e3));
            line += &cell(&text);
        }
        lines.push(line);
    }
    lines
}

/// The outcome that tells what a party does for each query.
fn definition(run: &RunResult, party: Party) -> Option<&Definition> {
    let is_meant = |outcome: &&Definition| {
        outcome.source == Source::Cpu { of: party } && outcome.aggregate == Aggregate::PerQuery
    };
    run.definitions.iter().find(is_meant)
}
