//! Values of an answer's columns.

use anyhow::Context;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int64Type};

/// 0, where there is no such column.
pub fn int(batch: &RecordBatch, name: &str, row: usize) -> i64 {
    batch.column_by_name(name).map_or(0, |column| column.as_primitive::<Int64Type>().value(row))
}

/// Of a decimal column without fraction.
pub fn wide_int(batch: &RecordBatch, name: &str, row: usize) -> i128 {
    batch.column_by_name(name).map_or(0, |column| column.as_primitive::<Decimal128Type>().value(row))
}

/// Of the first row.
pub fn optional_int(batch: &RecordBatch, name: &str) -> Option<i64> {
    batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?.iter().next()?
}

/// Of all rows; none, where there is no such column.
pub fn texts(batch: &RecordBatch, name: &str) -> Vec<String> {
    let text = |column: &ArrayRef| {
        let as_text = cast(column, &DataType::Utf8).ok()?;
        Some(as_text.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect())
    };
    batch.column_by_name(name).and_then(text).unwrap_or_default()
}

/// A class.
///
/// # Errors
/// It is none.
pub fn id(batch: &RecordBatch, row: usize) -> anyhow::Result<[u8; 16]> {
    let ids = batch.column_by_name("class").and_then(|column| column.as_fixed_size_binary_opt());
    let ids = ids.context("the column class is not of 16 bytes")?;
    ids.value(row).try_into().context("a class has not 16 bytes")
}

/// What `toll_histogram` returns: buckets and their counts.
///
/// # Errors
/// It is none.
pub fn histogram(batch: &RecordBatch, row: usize) -> anyhow::Result<Vec<(u16, u64)>> {
    let parts = batch.column_by_name("histogram").and_then(|column| column.as_struct_opt());
    let parts = parts.context("no histogram")?;
    let (bins, counts) =
        (parts.column(0).as_list::<i32>().value(row), parts.column(1).as_list::<i32>().value(row));
    let (bins, counts) = (bins.as_primitive::<Int64Type>(), counts.as_primitive::<Int64Type>());
    bins.values()
        .iter()
        .zip(counts.values())
        .map(|(bin, n)| Ok((u16::try_from(*bin)?, u64::try_from(*n)?)))
        .collect()
}
