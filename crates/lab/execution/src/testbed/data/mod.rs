//! Data recipes: how each kind of test data is generated and checked.

mod sbtest;
mod website;

use crate::treatment::AdminSession;
use anyhow::Context;
use toll_model::data::{DEFAULT_RECIPE, Recipe};
use toll_mysql::Target;
use toll_record::DataSetup;
use toll_server::DatasetSpec;
use toll_sys::cancel::CancelToken;

/// Where it is shown how far the loading of data has come; one kind of data after the other.
pub trait LoadProgress: Sync {
    /// So many rows are loaded, of so many. Threads that load call it.
    fn show_rows(&self, loaded: u64, whole: u64);

    /// All are loaded, or no more will be.
    fn finish_rows(&self);
}

/// Generator of one kind of data.
#[derive(Debug)]
struct DataGenerator {
    /// The recipe's name in the model.
    recipe: &'static str,
    /// Specification for a sandbox, so that data is generated once and cloned.
    spec: fn(&DataSetup) -> DatasetSpec,
    /// Fills the target's existing schema.
    load_data: fn(&Target, &DataSetup, &dyn LoadProgress, &CancelToken) -> anyhow::Result<()>,
    /// Fails if an existing schema does not hold the data.
    check: fn(&mut AdminSession, &str, &DataSetup) -> anyhow::Result<()>,
}

static GENERATORS: [DataGenerator; 2] = [sbtest::GENERATOR, website::GENERATOR];

/// Schema of a sandbox's data.
pub const SCHEMA: &str = "toll_load";

impl DataGenerator {
    fn for_recipe(recipe: &Recipe) -> anyhow::Result<&'static Self> {
        let made = GENERATORS.iter().find(|maker| maker.recipe == recipe.name);
        made.with_context(|| format!("nothing here makes data of the recipe {}", recipe.name))
    }
}

/// All generators that are needed: the recipe's, and the one of the loads' tables.
fn required_generators(data: &DataSetup) -> anyhow::Result<Vec<&'static DataGenerator>> {
    let asked = Recipe::by_name(&data.recipe)?;
    let of_loads = Recipe::by_name(DEFAULT_RECIPE)?;
    let beside = (asked.name != of_loads.name && data.tables > 0).then_some(of_loads);
    [asked].into_iter().chain(beside).map(DataGenerator::for_recipe).collect()
}

/// Specification of the data for a sandbox.
pub fn build_spec(data: &DataSetup) -> anyhow::Result<DatasetSpec> {
    let specs: Vec<DatasetSpec> =
        required_generators(data)?.into_iter().map(|maker| (maker.spec)(data)).collect();
    let joined = |text: fn(&DatasetSpec) -> &String, by: &str| {
        specs.iter().map(|spec| text(spec).as_str()).collect::<Vec<_>>().join(by)
    };
    Ok(DatasetSpec {
        key: joined(|spec| &spec.key, "+"),
        bytes: specs.iter().map(|spec| spec.bytes).sum(),
        what: joined(|spec| &spec.what, " and "),
    })
}

/// Creates the schema if missing, and fills it.
pub fn load(
    target: &Target,
    data: &DataSetup,
    loading: &dyn LoadProgress,
    cancel: &CancelToken,
) -> anyhow::Result<()> {
    let db = target.db.clone().or_else(|| Some(SCHEMA.to_owned()));
    let target = Target { db, ..target.clone() };
    toll_load::tables::ensure_schema(&target).context("cannot make the schema of the data")?;
    required_generators(data)?
        .into_iter()
        .try_for_each(|maker| (maker.load_data)(&target, data, loading, cancel))
}

/// Fails if an existing schema does not hold all of the data.
pub fn check_data(admin: &mut AdminSession, schema: &str, data: &DataSetup) -> anyhow::Result<()> {
    required_generators(data)?.into_iter().try_for_each(|maker| (maker.check)(admin, schema, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_model::data::RECIPES;

    #[test]
    fn every_recipe_has_a_maker_and_no_maker_is_without_a_recipe() {
        let recipes = RECIPES.iter().map(|recipe| recipe.name);
        assert!(recipes.eq(GENERATORS.iter().map(|maker| maker.recipe)));
    }

    #[test]
    fn the_tables_of_loads_lie_beside_whatever_else_there_is_and_keep_the_name_of_their_cache() {
        let of_loads = DataSetup {
            recipe: DEFAULT_RECIPE.into(),
            seed: 1,
            tables: 8,
            rows: 1_000,
            ..DataSetup::default()
        };
        let alone = build_spec(&of_loads).unwrap();
        assert_eq!(alone.key, "tables8-rows1000-seed1");
        let site = DataSetup { recipe: "website".into(), seed: 1, scale: Some(0.01), ..DataSetup::default() };
        let without_load = build_spec(&site).unwrap();
        assert_eq!(without_load.key, "website-scale0.01-seed1");
        let both = build_spec(&DataSetup { tables: 8, rows: 1_000, ..site }).unwrap();
        assert_eq!(both.key, "website-scale0.01-seed1+tables8-rows1000-seed1");
        assert_eq!(both.bytes, alone.bytes + without_load.bytes);
    }
}
