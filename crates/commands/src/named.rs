//! Value parser for options with a few named values, for clap.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use toll_sys::named_choice::NamedChoice;

/// Parses the names of [`NamedChoice::CHOICES`]; `--help` lists them with their descriptions.
pub fn named<T: NamedChoice>() -> impl TypedValueParser<Value = T> {
    let values = T::CHOICES.iter().map(|(name, _, help)| {
        let value = PossibleValue::new(*name);
        if help.is_empty() { value } else { value.help(*help) }
    });
    PossibleValuesParser::new(values)
        .try_map(|name| T::from_name(&name).ok_or_else(|| format!("{name} is not one of the names listed")))
}
