//! Built-in OLTP profiles.
//!
//! Texts, order, counts and distribution are those of sysbench 1.0.20's oltp_*.lua with default options. So
//! either program can replace the other and use its tables.

use super::{Distribution, Event, Mix, MixError, Param, Statement, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    ReadOnly,
    PointSelect,
    ReadWrite,
    WriteOnly,
    Insert,
    UpdateIndex,
    UpdateNonIndex,
    Delete,
}

/// The tables that a profile works on: `sbtest1` to `sbtest{tables}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSet {
    pub tables: u32,
    pub rows: u64,
    pub distribution: Distribution,
}

/// sysbench's --range-size and --point-selects.
const RANGE_SIZE: i64 = 100;
const POINT_SELECTS: usize = 10;

impl Profile {
    pub const ALL: [Self; 8] = [
        Self::ReadOnly,
        Self::PointSelect,
        Self::ReadWrite,
        Self::WriteOnly,
        Self::Insert,
        Self::UpdateIndex,
        Self::UpdateNonIndex,
        Self::Delete,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::PointSelect => "point-select",
            Self::ReadWrite => "read-write",
            Self::WriteOnly => "write-only",
            Self::Insert => "insert",
            Self::UpdateIndex => "update-index",
            Self::UpdateNonIndex => "update-non-index",
            Self::Delete => "delete",
        }
    }

    /// By our name or by sysbench's: `read-only`, `oltp_read_only`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name || profile.sysbench_name() == name)
    }

    /// What sysbench calls it.
    pub fn sysbench_name(self) -> String {
        format!("oltp_{}", self.name().replace('-', "_"))
    }

    /// True if it changes rows.
    pub fn writes(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::PointSelect)
    }

    pub fn build_mix(self, table: TableSet) -> Result<Mix, MixError> {
        let mut build = Builder { table, statements: Vec::new(), steps: Vec::new() };
        let transaction = matches!(self, Self::ReadOnly | Self::ReadWrite | Self::WriteOnly);
        if transaction {
            build.push_statement("BEGIN")?;
        }
        match self {
            Self::ReadOnly => build.reads()?,
            Self::ReadWrite => {
                build.reads()?;
                build.writes()?;
            }
            Self::WriteOnly => build.writes()?,
            Self::PointSelect => build.point_selects(1)?,
            Self::Insert => build.insert()?,
            Self::UpdateIndex => build.update_index()?,
            Self::UpdateNonIndex => build.update_non_index()?,
            Self::Delete => build.delete()?,
        }
        if transaction {
            build.push_statement("COMMIT")?;
        }
        let event = Event { name: self.name().into(), weight: 1.0, steps: build.steps, transaction };
        Mix::new(build.statements, vec![event], table.tables)
    }
}

struct Builder {
    table: TableSet,
    statements: Vec<Statement>,
    steps: Vec<Step>,
}

impl Builder {
    fn id(&self) -> Param {
        Param::Id { rows: self.table.rows, distribution: self.table.distribution }
    }

    fn number(&self) -> Param {
        Param::Number { rows: self.table.rows, distribution: self.table.distribution }
    }

    fn push_statement(&mut self, sql: &str) -> Result<(), MixError> {
        self.steps.push(Step::Fixed(self.statements.len()));
        self.statements.push(Statement::new(sql, Vec::new()).map_err(MixError::Invalid)?);
        Ok(())
    }

    /// One statement for each table, `{t}` being its number; returns where they begin.
    fn push_per_table(&mut self, sql: &str, params: &[Param]) -> Result<usize, MixError> {
        let first = self.statements.len();
        for number in 1..=self.table.tables {
            let sql = sql.replace("{t}", &number.to_string());
            self.statements.push(Statement::new(sql, params.to_vec()).map_err(MixError::Invalid)?);
        }
        Ok(first)
    }

    fn push_step(&mut self, first: usize, fresh: bool) {
        self.steps.push(Step::PerTable { first, fresh });
    }

    fn point_selects(&mut self, count: usize) -> Result<(), MixError> {
        let first = self.push_per_table("SELECT c FROM sbtest{t} WHERE id=?", &[self.id()])?;
        (0..count).for_each(|i| self.push_step(first, i == 0));
        Ok(())
    }

    fn reads(&mut self) -> Result<(), MixError> {
        self.point_selects(POINT_SELECTS)?;
        let range = [self.id(), Param::Kept { plus: RANGE_SIZE - 1 }];
        for sql in [
            "SELECT c FROM sbtest{t} WHERE id BETWEEN ? AND ?",
            "SELECT SUM(k) FROM sbtest{t} WHERE id BETWEEN ? AND ?",
            "SELECT c FROM sbtest{t} WHERE id BETWEEN ? AND ? ORDER BY c",
            "SELECT DISTINCT c FROM sbtest{t} WHERE id BETWEEN ? AND ? ORDER BY c",
        ] {
            let first = self.push_per_table(sql, &range)?;
            self.push_step(first, true);
        }
        Ok(())
    }

    fn update_index(&mut self) -> Result<(), MixError> {
        let first = self.push_per_table("UPDATE sbtest{t} SET k=k+1 WHERE id=?", &[self.id()])?;
        self.push_step(first, true);
        Ok(())
    }

    fn update_non_index(&mut self) -> Result<(), MixError> {
        let params = [Param::Digits { groups: 10 }, self.id()];
        let first = self.push_per_table("UPDATE sbtest{t} SET c=? WHERE id=?", &params)?;
        self.push_step(first, true);
        Ok(())
    }

    fn delete(&mut self) -> Result<(), MixError> {
        let first = self.push_per_table("DELETE FROM sbtest{t} WHERE id=?", &[self.id()])?;
        self.push_step(first, true);
        Ok(())
    }

    fn writes(&mut self) -> Result<(), MixError> {
        self.update_index()?;
        self.update_non_index()?;
        self.delete()?;
        // Into the gap just made: same table, same id.
        let params = [
            Param::Kept { plus: 0 },
            self.number(),
            Param::Digits { groups: 10 },
            Param::Digits { groups: 5 },
        ];
        let first =
            self.push_per_table("INSERT INTO sbtest{t} (id, k, c, pad) VALUES (?, ?, ?, ?)", &params)?;
        self.push_step(first, false);
        Ok(())
    }

    /// sysbench sends these as text whatever the mode.
    fn insert(&mut self) -> Result<(), MixError> {
        let params = [self.number(), Param::Digits { groups: 10 }, Param::Digits { groups: 5 }];
        let first =
            self.push_per_table("INSERT INTO sbtest{t} (id, k, c, pad) VALUES (0, ?, ?, ?)", &params)?;
        for statement in &mut self.statements[first..] {
            statement.text_only = true;
        }
        self.push_step(first, true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(profile: Profile) -> usize {
        let table = TableSet { tables: 8, rows: 1000, distribution: Distribution::Special };
        profile.build_mix(table).unwrap().events[0].steps.len()
    }

    #[test]
    fn each_profile_sends_as_many_statements_as_sysbench() {
        // sysbench: read-only 16 queries a transaction, read-write 20, write-only 6, the others 1.
        let counts = Profile::ALL.map(steps);
        assert_eq!(counts, [16, 1, 20, 6, 1, 1, 1, 1]);
    }

    #[test]
    fn a_name_finds_its_profile() {
        for profile in Profile::ALL {
            assert_eq!(Profile::from_name(profile.name()), Some(profile));
            assert_eq!(Profile::from_name(&profile.sysbench_name()), Some(profile));
        }
        assert_eq!(Profile::from_name("oltp"), None);
        assert_eq!(Profile::UpdateNonIndex.sysbench_name(), "oltp_update_non_index");
    }
}
