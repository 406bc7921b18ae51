//! In which forms is a run shown?

pub mod bound;
mod charted;
mod command;
mod doses;
mod findings;
pub mod html;
pub mod json;
pub mod markdown;
pub mod names;
mod notes;
pub mod overlay;
mod page;
mod pooled;
mod table;
pub mod text;
mod trust;
