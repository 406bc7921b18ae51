//! Which data can be asked for, and how does each kind come to be?

mod sbtest;

use crate::server::DataSpec;
use crate::treatment::Admin;
use anyhow::Context;
use toll_load::Target;
use toll_record::DataSetup;

/// How one kind of data comes to be.
#[derive(Debug)]
pub struct Recipe {
    /// As scenarios call it.
    pub name: &'static str,
    /// What a sandbox needs to know of it, so that it is made once and cloned.
    pub spec: fn(&DataSetup) -> DataSpec,
    /// Fills the target's schema.
    pub load: fn(&Target, &DataSetup) -> anyhow::Result<()>,
    /// An error where a schema that was there does not hold it.
    pub check: fn(&mut Admin, &str, &DataSetup) -> anyhow::Result<()>,
}

pub const RECIPES: [Recipe; 1] = [sbtest::RECIPE];

/// What data is where nobody says which.
pub const DEFAULT: &str = sbtest::RECIPE.name;

/// Schema of a sandbox's data.
pub const SCHEMA: &str = "toll_load";

impl Recipe {
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name).with_context(|| {
            let known: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
            format!("recipe = {name:?} is no data that toll can make: use {}", known.join(", "))
        })
    }
}
