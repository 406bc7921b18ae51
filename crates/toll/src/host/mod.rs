//! On what is measured?

pub mod disk;
pub mod memory;
