//! Rows as text for people, or as JSON lines.

use anyhow::Context;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Map, Value};
use std::io::Write;

/// Wider columns are cut in text.
const WIDTH_MAX: usize = 60;

/// Columns side by side, numbers to the right.
///
/// # Errors
/// The output failed.
pub fn text(batches: &[RecordBatch], out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(first) = batches.first() else { return Ok(()) };
    let schema = first.schema();
    let is_number: Vec<bool> = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
    let mut lines = vec![schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<String>>()];
    for batch in batches {
        let columns: Vec<Vec<String>> =
            batch.columns().iter().map(|column| cells(column)).collect::<Result<_, _>>()?;
        lines.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|column| cut(&column[row])).collect()),
        );
    }
    let widths: Vec<usize> = (0..is_number.len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0))
        .collect();
    for line in &lines {
        let padded = line.iter().zip(&widths).zip(&is_number).map(|((cell, width), is_number)| {
            if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        writeln!(out, "{}", padded.collect::<Vec<String>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn cut(cell: &str) -> String {
    let one_line: String = cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if one_line.chars().count() <= WIDTH_MAX {
        return one_line;
    }
    one_line.chars().take(WIDTH_MAX - 3).chain("...".chars()).collect()
}

fn cells(column: &dyn Array) -> anyhow::Result<Vec<String>> {
    if let DataType::Float64 = column.data_type() {
        let numbers = datafusion::arrow::array::cast::as_primitive_array::<
            datafusion::arrow::datatypes::Float64Type,
        >(column);
        return Ok(numbers
            .iter()
            .map(|number| number.map_or_else(String::new, |number| format!("{number:.3}")))
            .collect());
    }
    let options = FormatOptions::default();
    let format = ArrayFormatter::try_new(column, &options).context("a column cannot be shown")?;
    (0..column.len()).map(|row| Ok(format.value(row).try_to_string()?)).collect()
}

/// Each on a line of its own.
///
/// # Errors
/// The output failed.
pub fn json(batches: &[RecordBatch], out: &mut dyn Write) -> anyhow::Result<()> {
    objects(batches)?.iter().try_for_each(|object| Ok(writeln!(out, "{object}")?))
}

/// A JSON object for each row; values that are no numbers are texts.
///
/// # Errors
/// A column cannot be shown.
pub fn objects(batches: &[RecordBatch]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for batch in batches {
        let schema = batch.schema();
        for row in 0..batch.num_rows() {
            let mut object = Map::new();
            for (field, column) in schema.fields().iter().zip(batch.columns()) {
                object.insert(field.name().clone(), value(column, row)?);
            }
            objects.push(Value::Object(object));
        }
    }
    Ok(objects)
}

fn value(column: &dyn Array, row: usize) -> anyhow::Result<Value> {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        _ => {
            let options = FormatOptions::default();
            ArrayFormatter::try_new(column, &options)?.value(row).try_to_string()?.into()
        }
    })
}
