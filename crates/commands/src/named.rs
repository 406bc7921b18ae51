//! Value parsers for options with a few named values, for clap.

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::OsStr;
use toll_digest::classes::GroupBy;
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

/// Parses groupings, of which one has a name of the user's; `--help` and completions list them.
#[derive(Debug, Clone, Copy)]
pub struct GroupByParser;

impl TypedValueParser for GroupByParser {
    type Value = GroupBy;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<GroupBy, clap::Error> {
        StringValueParser::new()
            .try_map(|text: String| text.parse::<GroupBy>())
            .parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(GroupBy::NAMES.into_iter().map(PossibleValue::new)))
    }
}
