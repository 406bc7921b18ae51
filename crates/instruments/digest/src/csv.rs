//! CSV output of a digest (RFC 4180), one row for each class.

use super::json::{format_time, kind_name, lossy_text};
use super::{DigestResult, Request};
use crate::classes::Measure;
use std::io::{self, Write};
use toll_wire::attribute::{Attribute, Unit};

const AGGREGATES: [&str; 8] = ["sum", "min", "max", "mean", "stddev", "p50", "p95", "p99"];

pub fn write_csv(request: &Request, done: &DigestResult, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "rank,id,fingerprint,distill,kind,count,errors,tainted,first_seen,last_seen")?;
    for attribute in Attribute::ALL {
        let unit = if attribute.unit() == Unit::Time { "_us" } else { "" };
        for aggregate in AGGREGATES {
            write!(out, ",{}{unit}_{aggregate}", attribute.name())?;
        }
    }
    write!(out, "{}\r\n", if request.literals { ",sample" } else { "" })?;
    let (shown, _) = done.digest.ranked(request.limit);
    for (rank, class) in (1..).zip(shown) {
        write!(
            out,
            "{rank},{},{},{}",
            class.id,
            quote(&lossy_text(&class.text)),
            quote(&lossy_text(&class.distill))
        )?;
        write!(out, ",{},{},{},{}", kind_name(class.kind), class.count, class.errors, class.tainted)?;
        let moments = [class.first_ns, class.last_ns].map(|ns| format_time(ns).unwrap_or_default());
        write!(out, ",{},{}", moments[0], moments[1])?;
        for attribute in Attribute::ALL {
            for aggregate in AGGREGATES {
                let value =
                    class.measure(attribute).map(|measure| value(measure, aggregate, attribute.unit()));
                write!(out, ",{}", value.map(|v| v.to_string()).unwrap_or_default())?;
            }
        }
        if request.literals {
            write!(
                out,
                ",{}",
                quote(&class.sample.as_ref().map(|sample| lossy_text(&sample.render())).unwrap_or_default())
            )?;
        }
        write!(out, "\r\n")?;
    }
    Ok(())
}

fn value(measure: &Measure, aggregate: &str, unit: Unit) -> f64 {
    let value = match aggregate {
        "sum" => measure.sum as f64,
        "min" => measure.min as f64,
        "max" => measure.max as f64,
        "mean" => measure.mean(),
        "stddev" => measure.stddev(),
        "p50" => measure.quantile(0.5) as f64,
        "p95" => measure.quantile(0.95) as f64,
        _ => measure.quantile(0.99) as f64,
    };
    if unit == Unit::Time { value.round() / 1_000.0 } else { value }
}

/// As one field, whatever stands in it.
pub fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
