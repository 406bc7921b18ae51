//! In which forms is a run shown?

pub mod html;
mod page;
