//! Data recipes, as scenarios name them. Never loads any.

use anyhow::Context;

/// One kind of data. How it is loaded is a row of the same name in the table of whoever carries out a plan.
#[derive(Debug)]
pub struct Recipe {
    /// As scenarios call it.
    pub name: &'static str,
    /// Whether it comes in sizes (`scale`).
    pub is_scaled: bool,
}

/// Data where nobody says which, and the tables that loads touch.
pub const DEFAULT: &str = "sbtest";

pub const RECIPES: [Recipe; 2] =
    [Recipe { name: DEFAULT, is_scaled: false }, Recipe { name: "website", is_scaled: true }];

impl Recipe {
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name).with_context(|| {
            let known: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
            format!("recipe = {name:?} is no data that toll can make: use {}", known.join(", "))
        })
    }
}
