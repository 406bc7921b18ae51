//! Report forms of a run: text, Markdown, JSON and HTML.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod axis;
pub mod bound;
mod chart_tables;
mod checks;
pub mod combined;
mod command;
mod dose_lines;
mod findings;
pub mod forest_plot;
pub mod html;
mod interval_bar;
pub mod json;
pub mod markdown;
pub mod names;
mod notes;
mod overhead_table;
mod page;
mod parties;
mod pooled;
mod table;
mod terminal;
pub mod text;
