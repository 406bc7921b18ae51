//! What a treatment changes, word for word, and what undoes it by hand.

use std::collections::BTreeMap;
use toll_mysql::sql_string;
use toll_record::{Arm, RowUpdate};

/// One change and its undo, as a person would type them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    pub on: String,
    pub off: String,
}

/// All of an arm's, in the order in which they are made. `variables` are the server's own values now.
#[must_use]
pub fn switches_of(arm: &Arm, variables: &BTreeMap<String, String>) -> Vec<Switch> {
    let treatment = &arm.treatment;
    let settings = treatment.settings.iter().filter_map(|setting| {
        let old = variables.get(&setting.name);
        if old.is_none() && setting.if_known {
            return None;
        }
        let off = old.map_or_else(
            || format!("-- the server does not know {}", setting.name),
            |old| format!("SET GLOBAL {} = {}", setting.name, literal(old)),
        );
        Some(Switch { on: format!("SET GLOBAL {} = {}", setting.name, literal(&setting.value)), off })
    });
    let updates = treatment.updates.iter().map(|update| Switch {
        on: update_sql(update),
        off: format!("-- the old values of {}, which toll reads first and puts back", update.table),
    });
    let mut offs = treatment.off.iter();
    let statements = treatment.on.iter().map(|on| Switch {
        on: on.clone(),
        off: offs.next().cloned().unwrap_or_else(|| "-- nothing".to_owned()),
    });
    let kernel = treatment.sysctl.iter().map(|(name, value)| Switch {
        on: format!("sysctl -w {name}={value}"),
        off: format!("sysctl -w {name}=<the value that it has now>"),
    });
    let processes = treatment.processes.iter().map(|process| {
        let words: Vec<String> = process.stages.iter().map(|stage| stage.join(" ")).collect();
        Switch {
            on: words.join(" | "),
            off: format!("ended by SIG{}", format!("{:?}", process.stop).to_uppercase()),
        }
    });
    settings.chain(updates).chain(statements).chain(kernel).chain(processes).collect()
}

/// Numbers and words that are values by themselves as they are, all else in quotes.
fn literal(value: &str) -> String {
    let is_plain = !value.is_empty() && value.parse::<f64>().is_ok();
    let is_word = ["ON", "OFF", "DEFAULT"].contains(&value.to_ascii_uppercase().as_str());
    if is_plain || is_word { value.to_owned() } else { sql_string(value) }
}

fn update_sql(update: &RowUpdate) -> String {
    let values: Vec<String> =
        update.set.iter().map(|(column, value)| format!("{column} = {}", sql_string(value))).collect();
    let which = update.which.as_ref().map(|which| format!(" WHERE {which}")).unwrap_or_default();
    format!("UPDATE {} SET {}{which}", update.table, values.join(", "))
}
