//! `--format json` beside `--json`: every subcommand that has one takes the other, too.

use clap::{Args, ValueEnum};

/// `--format` of subcommands that print text or JSON. Hidden: `--json` says the same in less.
#[derive(Debug, Args)]
pub struct JsonFormat {
    /// Form of the output
    #[arg(long = "format", value_enum, hide = true)]
    format: Option<TextOrJson>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TextOrJson {
    Text,
    Json,
}

impl JsonFormat {
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Some(TextOrJson::Json)
    }
}
