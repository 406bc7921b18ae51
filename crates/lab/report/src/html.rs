//! Report of runs, or of captures, as one HTML file that opens anywhere, offline.
//!
//! `page.html` beside this file is built from `viewer/`. It is stored with the sources so that building toll
//! needs no node. This file inserts the data. Never decides what is drawn: the page does.

use super::page::Page;
use anyhow::Context;
use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use toll_net::pcap::profile::json::Document;
use toll_record::{RunDir, RunResult};

const TEMPLATE: &str = include_str!("page.html");

/// Place of the page's data: text of a script block that the browser does not run.
const DATA_MARKER: &str = "{{toll-data}}";

/// One page that shows `runs` and their results side by side, in the order given.
///
/// Never reads the result stored in a run: every form of a report shows the same analysis.
///
/// # Errors
/// A run directory cannot be read.
pub fn html(runs: &[RunDir], results: &[RunResult]) -> anyhow::Result<String> {
    anyhow::ensure!(!runs.is_empty(), "no run to show: name at least one run directory");
    fill_template(&Page::of_runs(runs, results)?)
}

/// One page that shows profiles of captures: their shares side by side, then each by itself.
pub fn captures(document: &Document) -> anyhow::Result<String> {
    fill_template(&Page::of_captures(document))
}

fn fill_template(page: &Page) -> anyhow::Result<String> {
    let data = serde_json::to_string(page).context("cannot write the page's data as JSON")?;
    let (before, after) = TEMPLATE
        .split_once(DATA_MARKER)
        .context("this toll was built with a page that has no place for data: run `make viewer`, rebuild")?;
    let packed = pack(&data).context("cannot compress the page's data")?;
    Ok([before, &packed, after].concat())
}

/// The data as the page reads it: JSON, gzip, base64. Six times smaller than JSON, and without a character that could end
/// its script block.
fn pack(json: &str) -> std::io::Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(json.as_bytes())?;
    Ok(BASE64_STANDARD.encode(packed.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_has_one_place_for_data() {
        assert_eq!(TEMPLATE.matches(DATA_MARKER).count(), 1);
    }

    #[test]
    fn the_template_forbids_every_request() {
        assert!(TEMPLATE.contains("default-src 'none'"));
        for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
            assert!(!TEMPLATE.contains(outside), "{outside} in the page");
        }
    }

    #[test]
    fn the_template_stays_below_its_size() {
        assert!(TEMPLATE.len() <= 1_200_000, "{} bytes", TEMPLATE.len());
    }

    #[test]
    fn strings_of_a_run_cannot_leave_the_data_block() {
        let hostile = r#"{"a":"</script><script>alert(1)</script><!-- &lt; \u2028"}"#;
        let packed = pack(hostile).unwrap();
        assert!(packed.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)), "{packed}");
        assert_eq!(toll_testkit::report_page::unpack(&packed), hostile);
    }
}
