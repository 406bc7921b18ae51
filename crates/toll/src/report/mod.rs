//! In which forms is a run shown?

pub mod bound;
mod command;
mod doses;
mod findings;
pub mod html;
pub mod json;
pub mod markdown;
mod notes;
mod page;
pub mod pooled;
mod table;
pub mod text;
mod trust;
