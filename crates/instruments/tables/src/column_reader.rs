//! Reader of a table's Parquet file, by columns, some rows at a time.

use super::column::{Column, Values};
use anyhow::{Context, bail, ensure};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;

/// A Parquet file of a table being read, some rows at a time.
pub struct TableReader<R: ChunkReader + 'static> {
    file: SerializedFileReader<R>,
    /// Those that are read, without rows.
    like: Vec<Column>,
    /// Of each column, in the file.
    leaves: Vec<usize>,
    /// The next group of rows.
    group: usize,
    columns: Vec<ColumnReader>,
    /// Rows of the group that are not read yet.
    left: usize,
}

impl<R: ChunkReader + 'static> TableReader<R> {
    /// `like`: the columns without rows, in their order; what else the file has is passed by.
    ///
    /// # Errors
    /// It is no such table.
    pub fn new(file: R, like: Vec<Column>) -> anyhow::Result<Self> {
        let options = ReadOptionsBuilder::new().with_page_index().build();
        let file = SerializedFileReader::new_with_options(file, options)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let leaf = |name: &str| {
            let is_named =
                |at: &usize| schema.column(*at).path().parts().first().is_some_and(|part| part == name);
            (0..schema.num_columns()).find(is_named).with_context(|| format!("it has no column {name}"))
        };
        let leaves = like.iter().map(|(name, _)| leaf(name)).collect::<anyhow::Result<_>>()?;
        Ok(Self { file, like, leaves, group: 0, columns: Vec::new(), left: 0 })
    }

    /// Of the whole file.
    pub fn rows(&self) -> u64 {
        self.file.metadata().file_metadata().num_rows().max(0).cast_unsigned()
    }

    /// The next rows, `max` at most; `None`: there are no more.
    ///
    /// # Errors
    /// It is no such table.
    pub fn next_rows(&mut self, max: usize) -> anyhow::Result<Option<Vec<Column>>> {
        while self.left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.file.get_row_group(self.group)?;
            self.left = usize::try_from(group.metadata().num_rows()).context("no such number of rows")?;
            self.columns =
                self.leaves.iter().map(|leaf| group.get_column_reader(*leaf)).collect::<Result<_, _>>()?;
            self.group += 1;
        }
        let rows = self.left.min(max);
        let mut columns = self.like.clone();
        for ((name, values), reader) in columns.iter_mut().zip(&mut self.columns) {
            values.read(reader, rows).with_context(|| format!("column {name}"))?;
        }
        self.left -= rows;
        Ok(Some(columns))
    }
}

impl Values {
    fn read(&mut self, column: &mut ColumnReader, rows: usize) -> anyhow::Result<()> {
        match (self, column) {
            (Self::Int(values) | Self::Time(values), ColumnReader::Int64ColumnReader(column)) => {
                values.extend(Levelled::read(column, rows)?.required()?);
            }
            (Self::OptionalInt(values), ColumnReader::Int64ColumnReader(column)) => {
                values.extend(Levelled::read(column, rows)?.optional());
            }
            (Self::IntList(values), ColumnReader::Int64ColumnReader(column)) => {
                let Levelled { values: read, defined, repeated, .. } = Levelled::read(column, rows)?;
                values.extend_levelled(read, &defined, &repeated);
            }
            (Self::Float(values), ColumnReader::DoubleColumnReader(column)) => {
                values.extend(Levelled::read(column, rows)?.required()?);
            }
            (Self::Text(values), ColumnReader::ByteArrayColumnReader(column)) => {
                for text in Levelled::read(column, rows)?.required()? {
                    values.push(text.as_utf8()?.to_owned());
                }
            }
            (Self::TextList(values), ColumnReader::ByteArrayColumnReader(column)) => {
                let Levelled { values: read, defined, repeated, .. } = Levelled::read(column, rows)?;
                let texts = read.iter().map(|text| Ok(text.as_utf8()?.to_owned()));
                values.extend_levelled(texts.collect::<anyhow::Result<Vec<_>>>()?, &defined, &repeated);
            }
            (Self::Id(values), ColumnReader::FixedLenByteArrayColumnReader(column)) => {
                for id in Levelled::read(column, rows)?.required()? {
                    values.push(id.data().try_into().context("an ID that has not 16 bytes")?);
                }
            }
            _ => bail!("it is of another type"),
        }
        Ok(())
    }
}

/// Values with the levels that say which of them are absent, and where lists begin.
struct Levelled<T> {
    values: Vec<T>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
    rows: usize,
}

impl<T> Levelled<T> {
    fn read<D: DataType<T = T>>(column: &mut ColumnReaderImpl<D>, rows: usize) -> anyhow::Result<Self> {
        let mut read = Self { values: Vec::new(), defined: Vec::new(), repeated: Vec::new(), rows };
        let mut done = 0;
        while done < rows {
            let Self { values, defined, repeated, .. } = &mut read;
            let (records, _, _) = column.read_records(rows - done, Some(defined), Some(repeated), values)?;
            ensure!(records > 0, "it ends after {done} of {rows} rows");
            done += records;
        }
        Ok(read)
    }

    fn required(self) -> anyhow::Result<Vec<T>> {
        ensure!(self.values.len() == self.rows, "it has {} values in {} rows", self.values.len(), self.rows);
        Ok(self.values)
    }

    fn optional(self) -> impl Iterator<Item = Option<T>> {
        let mut values = self.values.into_iter();
        self.defined.into_iter().map(move |level| if level > 0 { values.next() } else { None })
    }
}
