//! Tests of the client against servers that are made for it.

// A test fails by panicking, its support included.
#![allow(clippy::unwrap_used)]

mod hostile;
