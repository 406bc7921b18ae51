//! Scenario named on a command line: a preset by its name, or a file by its path.

use anyhow::{Context, bail};
use std::path::Path;
use toll_model::scenario::{Preset, Scenario};

/// The scenario and its text.
pub(super) fn load(name_or_path: &str) -> anyhow::Result<(Scenario, String)> {
    if let Some(preset) = Preset::named(name_or_path) {
        return Ok((preset.scenario()?, preset.text.to_owned()));
    }
    if !Path::new(name_or_path).exists() {
        let like = Preset::most_like(name_or_path);
        let like = like.map(|preset| format!("Did you mean {}? ", preset.name)).unwrap_or_default();
        bail!("there is no scenario and no file {name_or_path:?}. {like}`toll list` shows all scenarios");
    }
    let text =
        std::fs::read_to_string(name_or_path).with_context(|| format!("cannot read {name_or_path}"))?;
    let scenario = Scenario::parse(&text).with_context(|| format!("in {name_or_path}"))?;
    Ok((scenario, text))
}
