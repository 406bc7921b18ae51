//! A table in memory, by columns, and its Parquet file.

use super::lists::Lists;
use anyhow::Context;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{
    ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int64Type,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::Write;
use std::sync::Arc;

/// Rows of a group: what a reader skips, or reads, as a whole.
const GROUP_ROWS: usize = 1 << 18;
/// Of a page of lists, histograms among them, before compression: what a reader of some classes decompresses as a whole. Some 20
/// wide histograms.
const LIST_PAGE_BYTES: usize = 8 << 10;
const ZSTD_LEVEL: i32 = 3;

/// Values of one column, one for each row.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    Int(Vec<i64>),
    OptionalInt(Vec<Option<i64>>),
    Float(Vec<f64>),
    /// Unix time, microseconds.
    Time(Vec<i64>),
    Text(Vec<String>),
    /// MD5.
    Id(Vec<[u8; 16]>),
    IntList(Lists<i64>),
    TextList(Lists<String>),
}

/// A column's name and values.
pub type Column = (&'static str, Values);

/// Writes the columns, which have the same number of rows, as a Parquet file.
///
/// # Errors
/// `out` does not take it.
pub fn write_table(columns: &[Column], out: impl Write + Send) -> anyhow::Result<()> {
    let rows = columns.first().map_or(0, |(_, values)| values.len());
    let schema = parse_message_type(&message(columns)).context("no schema")?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_created_by(concat!("toll ", env!("CARGO_PKG_VERSION")).to_owned());
    let is_of_numbers = |values: &Values| matches!(values, Values::IntList(_));
    let lists =
        columns.iter().filter(|(_, values)| is_of_numbers(values) || matches!(values, Values::TextList(_)));
    let properties = lists.fold(properties, |properties, (name, values)| {
        let path = ColumnPath::new([*name, "list", "element"].map(str::to_owned).to_vec());
        // Nobody chooses rows by the least and greatest of a list, which would be kept for each of many pages.
        let properties = properties
            .set_column_data_page_size_limit(path.clone(), LIST_PAGE_BYTES)
            .set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
        if !is_of_numbers(values) {
            return properties;
        }
        // Buckets ascend, and counts are of all sizes: numbers of a dictionary are not bytes that zstd can tell apart.
        properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
    });
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
    for begin in (0..rows).step_by(GROUP_ROWS) {
        let range = begin..(begin + GROUP_ROWS).min(rows);
        let mut group = file.next_row_group()?;
        for (_, values) in columns {
            let column = group.next_column()?.context("fewer columns than the schema has")?;
            values.write(range.clone(), column)?;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

/// The schema in Parquet's own words.
fn message(columns: &[Column]) -> String {
    let fields: String = columns
        .iter()
        .map(|(name, values)| match values {
            Values::Int(_) => format!("required int64 {name};\n"),
            Values::OptionalInt(_) => format!("optional int64 {name};\n"),
            Values::Float(_) => format!("required double {name};\n"),
            Values::Time(_) => format!("required int64 {name} (TIMESTAMP(MICROS,true));\n"),
            Values::Text(_) => format!("required binary {name} (STRING);\n"),
            Values::Id(_) => format!("required fixed_len_byte_array(16) {name};\n"),
            Values::IntList(_) => list(name, "int64", ""),
            Values::TextList(_) => list(name, "binary", " (STRING)"),
        })
        .collect();
    format!("message toll {{\n{fields}}}")
}

fn list(name: &str, kind: &str, logical: &str) -> String {
    format!(
        "required group {name} (LIST) {{ repeated group list {{ required {kind} element{logical}; }} }}\n"
    )
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Self::Int(values) | Self::Time(values) => values.len(),
            Self::OptionalInt(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Id(values) => values.len(),
            Self::IntList(values) => values.len(),
            Self::TextList(values) => values.len(),
        }
    }

    fn write(
        &self,
        rows: std::ops::Range<usize>,
        mut column: SerializedColumnWriter<'_>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Int(values) | Self::Time(values) => {
                column.typed::<Int64Type>().write_batch(&values[rows], None, None)?;
            }
            Self::OptionalInt(values) => {
                let levels: Vec<i16> = values[rows.clone()].iter().map(|v| i16::from(v.is_some())).collect();
                let present: Vec<i64> = values[rows].iter().flatten().copied().collect();
                column.typed::<Int64Type>().write_batch(&present, Some(&levels), None)?;
            }
            Self::Float(values) => {
                column.typed::<DoubleType>().write_batch(&values[rows], None, None)?;
            }
            Self::Text(values) => {
                let texts: Vec<ByteArray> = values[rows].iter().map(|text| text.as_str().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            }
            Self::Id(values) => {
                let ids: Vec<FixedLenByteArray> = values[rows].iter().map(|id| id.to_vec().into()).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&ids, None, None)?;
            }
            Self::IntList(values) => {
                let (defined, repeated) = list_levels(values.lengths(rows.clone()));
                column.typed::<Int64Type>().write_batch(
                    values.values(rows),
                    Some(&defined),
                    Some(&repeated),
                )?;
            }
            Self::TextList(values) => {
                let (defined, repeated) = list_levels(values.lengths(rows.clone()));
                let flat: Vec<ByteArray> =
                    values.values(rows).iter().map(|text| text.as_str().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&flat, Some(&defined), Some(&repeated))?;
            }
        }
        Ok(column.close()?)
    }
}

/// Levels of definition and of repetition of lists of these lengths.
fn list_levels(lengths: impl Iterator<Item = usize>) -> (Vec<i16>, Vec<i16>) {
    let (mut defined, mut repeated) = (Vec::new(), Vec::new());
    for length in lengths {
        defined.push(i16::from(length > 0));
        repeated.push(0);
        defined.extend(std::iter::repeat_n(1, length.saturating_sub(1)));
        repeated.extend(std::iter::repeat_n(1, length.saturating_sub(1)));
    }
    (defined, repeated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn a_file_holds_what_was_written_empty_lists_and_absent_numbers_too() {
        let columns = [
            ("n", Values::Int(vec![1, -2, i64::MAX])),
            ("sent", Values::OptionalInt(vec![Some(7), None, Some(0)])),
            ("share", Values::Float(vec![1.0, 0.25, -0.0])),
            ("ts", Values::Time(vec![0, 1, 1_764_165_600_000_000])),
            ("host", Values::Text(vec!["a".into(), String::new(), "ü".into()])),
            ("class", Values::Id(vec![[0; 16], [1; 16], [255; 16]])),
            ("bins", Values::IntList([vec![3, 4], vec![], vec![9]].into_iter().collect())),
            ("dbs", Values::TextList([vec![], vec!["x".into(), "y".into()], vec![]].into_iter().collect())),
        ];
        let mut bytes = Vec::new();
        write_table(&columns, &mut bytes).unwrap();
        let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<String> =
            file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows.len(), 3);
        assert!(rows[0].contains("bins: [3, 4], dbs: []"), "{}", rows[0]);
        assert!(
            rows[1].contains("n: -2, sent: null") && rows[1].contains("dbs: [\"x\", \"y\"]"),
            "{}",
            rows[1]
        );
        let last = file.get_row_iter(None).unwrap().nth(2).unwrap().unwrap();
        let n = last.get_column_iter().find(|(name, _)| *name == "n").map(|(_, field)| field.clone());
        assert_eq!(n, Some(Field::Long(i64::MAX)));
    }
}
