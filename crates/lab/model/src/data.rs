//! Data recipes, as scenarios name them. Never loads any data.

use anyhow::Context;

/// One kind of data. A row of the same name in the execution crate's table says how to load it.
#[derive(Debug)]
pub struct Recipe {
    /// The name in scenarios.
    pub name: &'static str,
    /// True if it comes in sizes (`scale`).
    pub is_scaled: bool,
}

/// The recipe if the scenario names none, and the tables that loads use.
pub const DEFAULT_RECIPE: &str = "sbtest";

pub const RECIPES: [Recipe; 2] =
    [Recipe { name: DEFAULT_RECIPE, is_scaled: false }, Recipe { name: "website", is_scaled: true }];

impl Recipe {
    pub fn by_name(name: &str) -> anyhow::Result<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name).with_context(|| {
            let known: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
            format!("recipe = {name:?} is no data that toll can make: use {}", known.join(", "))
        })
    }
}
