//! Reader of the data inside a report's page.

use base64::prelude::{BASE64_STANDARD, Engine};
use std::io::Read;

/// JSON of a page's data block.
///
/// # Panics
/// The page has no such block.
#[must_use]
pub fn page_data(page: &str) -> String {
    let (_, block) = page.split_once("id=\"toll-data\">").expect("a data block");
    unpack(block.split_once('<').expect("its end").0)
}

/// JSON from gzip in base64.
///
/// # Panics
/// It is neither.
#[must_use]
pub fn unpack(packed: &str) -> String {
    let bytes = BASE64_STANDARD.decode(packed).expect("base64");
    let mut json = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut json).expect("gzip of JSON");
    json
}
