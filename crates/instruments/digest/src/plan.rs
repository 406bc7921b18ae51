//! Plan of a class: what a server answered to EXPLAIN of its sample. Asks no server.

use super::schema::PlanRow;
use std::io::{self, Write};

/// EXPLAIN of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPlan {
    /// Address and version of the server.
    pub server: String,
    pub result: PlanResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanResult {
    Table {
        columns: Vec<String>,
        rows: Vec<Vec<Option<String>>>,
    },
    /// The reason.
    NotExplained(String),
}

/// Longer values, such as lists of keys, are cut in a report.
const CELL_MAX: usize = 40;

impl ClassPlan {
    pub(super) fn row(&self) -> PlanRow {
        let (columns, rows, not_explained) = match &self.result {
            PlanResult::Table { columns, rows } => (columns.clone(), rows.clone(), None),
            PlanResult::NotExplained(reason) => (Vec::new(), Vec::new(), Some(reason.clone())),
        };
        PlanRow { server: self.server.clone(), columns, rows, not_explained }
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (columns, rows) = match &self.result {
            PlanResult::NotExplained(reason) => {
                return writeln!(
                    out,
                    "# EXPLAIN on {}: none, {}",
                    self.server,
                    render_cell(reason, usize::MAX)
                );
            }
            PlanResult::Table { columns, rows } => (columns, rows),
        };
        writeln!(out, "# EXPLAIN on {}", self.server)?;
        let head = columns.iter().map(|column| render_cell(column, CELL_MAX)).collect();
        let cells = |row: &Vec<Option<String>>| {
            row.iter().map(|cell| render_cell(cell.as_deref().unwrap_or("NULL"), CELL_MAX)).collect()
        };
        let table: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
        let width = |at: usize| {
            table.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        for row in table {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(out, "#   {}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// On one line: a server's words are data.
fn render_cell(text: &str, most: usize) -> String {
    let mut cell: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(most).collect();
    if text.chars().nth(most).is_some() {
        cell.pop();
        cell.push('…');
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: PlanResult) -> String {
        let mut out = Vec::new();
        ClassPlan { server: "db1:3306, 10.11".into(), result }.write_text(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_plan_is_a_table_and_a_reason_a_line() {
        let rows = vec![vec![Some("1".into()), None], vec![Some("2\x1b".into()), Some("k".repeat(50))]];
        let table = text(PlanResult::Table { columns: vec!["id".into(), "key".into()], rows });
        let cut = format!("#   2   {}…\n", "k".repeat(39));
        assert_eq!(table, format!("# EXPLAIN on db1:3306, 10.11\n#   id  key\n#   1   NULL\n{cut}"));
        let reason = text(PlanResult::NotExplained("it is no\nSELECT".into()));
        assert_eq!(reason, "# EXPLAIN on db1:3306, 10.11: none, it is no SELECT\n");
    }
}
