//! A table in memory, by columns, and its Parquet file.

use super::lists::Lists;
use anyhow::Context;
use bytes::Bytes;
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

/// A Parquet file being written.
pub struct TableFile<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: usize,
}

impl<W: Write + Send> TableFile<W> {
    /// `columns`: their names and types; their values are not written.
    ///
    /// # Errors
    /// `out` does not take it.
    pub fn new(columns: &[Column], out: W) -> anyhow::Result<Self> {
        let schema = parse_message_type(&message(columns)).context("no schema")?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_created_by(concat!("toll ", env!("CARGO_PKG_VERSION")).to_owned());
        let is_of_numbers = |values: &Values| matches!(values, Values::IntList(_));
        let lists = (columns.iter())
            .filter(|(_, values)| is_of_numbers(values) || matches!(values, Values::TextList(_)));
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
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
        Ok(Self { file, rows: 0 })
    }

    /// Adds rows of the columns, which have the same number of them: what a reader skips, or reads, as a whole.
    ///
    /// # Errors
    /// `out` does not take it.
    pub fn write_group(&mut self, columns: &[Column]) -> anyhow::Result<()> {
        let mut group = self.file.next_row_group()?;
        for (_, values) in columns {
            let column = group.next_column()?.context("fewer columns than the schema has")?;
            values.write(column)?;
        }
        group.close()?;
        self.rows += columns.first().map_or(0, |(_, values)| values.len());
        Ok(())
    }

    /// Written so far.
    pub fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    /// Ends the file, and returns its rows.
    ///
    /// # Errors
    /// `out` does not take it.
    pub fn finish(self) -> anyhow::Result<(usize, W)> {
        Ok((self.rows, self.file.into_inner()?))
    }
}

/// The columns as a Parquet file.
///
/// # Errors
/// Never, but for a fault of the library.
pub fn table_bytes(columns: &[Column]) -> anyhow::Result<Vec<u8>> {
    let mut file = TableFile::new(columns, Vec::new())?;
    if columns.first().is_some_and(|(_, values)| values.len() > 0) {
        file.write_group(columns)?;
    }
    Ok(file.finish()?.1)
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

    fn write(&self, mut column: SerializedColumnWriter<'_>) -> anyhow::Result<()> {
        match self {
            Self::Int(values) | Self::Time(values) => {
                column.typed::<Int64Type>().write_batch(values, None, None)?;
            }
            Self::OptionalInt(values) => {
                let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
                let present: Vec<i64> = values.iter().flatten().copied().collect();
                column.typed::<Int64Type>().write_batch(&present, Some(&levels), None)?;
            }
            Self::Float(values) => {
                column.typed::<DoubleType>().write_batch(values, None, None)?;
            }
            Self::Text(values) => {
                let texts: Vec<ByteArray> = end_to_end(values);
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            }
            Self::Id(values) => {
                let ids: Vec<ByteArray> = end_to_end(values);
                let ids: Vec<FixedLenByteArray> = ids.into_iter().map(Into::into).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&ids, None, None)?;
            }
            Self::IntList(lists) => {
                let (defined, repeated) = list_levels(lists.lengths());
                column.typed::<Int64Type>().write_batch(lists.values(), Some(&defined), Some(&repeated))?;
            }
            Self::TextList(lists) => {
                let (defined, repeated) = list_levels(lists.lengths());
                let flat: Vec<ByteArray> = end_to_end(lists.values());
                column.typed::<ByteArrayType>().write_batch(&flat, Some(&defined), Some(&repeated))?;
            }
        }
        Ok(column.close()?)
    }
}

/// Parts of one allocation, not each in one of its own.
fn end_to_end(values: &[impl AsRef<[u8]>]) -> Vec<ByteArray> {
    let mut all = Vec::with_capacity(values.iter().map(|value| value.as_ref().len()).sum());
    values.iter().for_each(|value| all.extend_from_slice(value.as_ref()));
    let mut rest = Bytes::from(all);
    values.iter().map(|value| rest.split_to(value.as_ref().len()).into()).collect()
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
        let bytes = table_bytes(&columns).unwrap();
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
