//! Chart descriptions: self-contained data for a drawing program that knows nothing of the run.
//!
//! Covers charts requested by a scenario, the resulting charts, and overlays of several runs.

use serde::{Deserialize, Serialize};

/// Line chart of outcomes over the parameters that `each` varies in a scenario's arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Charted {
    /// Stable; a part of the chart's id.
    pub name: String,
    pub title: String,
    /// Each has lines of its own; all are in one unit.
    pub outcomes: Vec<String>,
    /// The key whose values stand along the axis, in the order of the arms.
    pub x: String,
    /// Axis title with the unit; absent: the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_title: Option<String>,
    /// Keys whose values have a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Keys whose values have a figure each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panels: Vec<String>,
    /// Name of a line on which an outcome is what `x` says; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagonal: Option<String>,
}

impl Charted {
    /// All keys that distinguish arms: those of its figures, of its lines, and `x`.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.panels.iter().chain(&self.lines).chain([&self.x])
    }

    /// Where an arm with these values stands, in the order of the keys; `None`: it was varied by others, or by more.
    pub fn key_values<'a>(&self, varied: &'a [(String, String)]) -> Option<Vec<&'a str>> {
        let value =
            |key: &String| varied.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        if self.keys().count() == varied.len() { self.keys().map(value).collect() } else { None }
    }
}

/// A figure that the data describes completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Chart {
    /// Stable; used in links.
    pub id: String,
    pub title: String,
    pub kind: ChartKind,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<ChartSeries>,
    pub note: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    Line,
    Bar,
    /// Bars whose series stand one behind another, of which the sum is the bar.
    Stacked,
    Histogram,
    Timeline,
    Table,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Axis {
    pub label: String,
    pub unit: String,
    pub log: bool,
    /// Names of the positions, where it has no scale.
    pub categories: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ChartSeries {
    pub name: String,
    /// x, y, and where there is an interval its low and high end.
    pub points: Vec<ChartPoint>,
}

pub type ChartPoint = (f64, f64, Option<f64>, Option<f64>);

/// Overlay of runs of the same question on different platforms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Overlay {
    /// Properties in which they differ, a few words each: `kernel`, `libpcap`.
    pub differ_in: Vec<String>,
    /// One for each run, in their order.
    pub platforms: Vec<Platform>,
    /// Each with a line, or a column, for each platform.
    pub charts: Vec<Chart>,
}

/// Platform of one of several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Platform {
    /// Unlike any other's.
    pub name: String,
    /// What (`kernel`), and which: the same whats in the same order for all platforms; empty: not known.
    pub facts: Vec<(String, String)>,
}
