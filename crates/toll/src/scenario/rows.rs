//! How does an arm say which rows of a server's tables it changes?

use anyhow::bail;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Rows that are changed while the arm is on, such as those of performance_schema's setup tables.
/// toll reads them first, and puts back what differs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowUpdate {
    /// With its schema: `performance_schema.setup_consumers`.
    pub table: String,
    /// The columns that tell its rows apart.
    pub key: Vec<String>,
    /// Which rows, as SQL; all of them where it is absent.
    #[serde(rename = "where")]
    pub which: Option<String>,
    /// Values by column.
    pub set: BTreeMap<String, String>,
}

impl RowUpdate {
    pub fn check(&self) -> anyhow::Result<()> {
        if self.table.split('.').count() != 2 || self.table.split('.').any(str::is_empty) {
            bail!(
                "`update` of the table `{}`: name it with its schema, as in performance_schema.setup_consumers",
                self.table
            );
        }
        if self.key.is_empty() || self.set.is_empty() {
            bail!("`update` of {}: give `key` (the columns that tell its rows apart) and `set`", self.table);
        }
        if let Some(column) = self.key.iter().find(|column| self.set.contains_key(*column)) {
            bail!("`update` of {}: `{column}` is a key, which cannot be set", self.table);
        }
        Ok(())
    }
}
