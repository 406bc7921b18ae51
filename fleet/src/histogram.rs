//! SQL functions on histograms of query times: `toll_histogram(hist_bin, hist_n)` merges, `toll_quantile(histogram, q)` reads.
//!
//! Merging adds counts of equal buckets: no error comes of it, in whatever order and over however many threads.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use toll_digest::classes::{BUCKETS, Histogram};

/// `toll_histogram(hist_bin, hist_n)`: a struct of two lists, `bin` and `n`.
pub fn merging_function() -> AggregateUDF {
    AggregateUDF::from(MergeHistograms { signature: Signature::any(2, Volatility::Immutable) })
}

/// `toll_quantile(histogram, q)`: nanoseconds; null for a histogram of nothing.
pub fn quantile_function() -> ScalarUDF {
    ScalarUDF::from(Quantile { signature: Signature::any(2, Volatility::Immutable) })
}

fn list_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, false)))
}

fn histogram_fields() -> Fields {
    Fields::from(vec![Field::new("bin", list_type(), false), Field::new("n", list_type(), false)])
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MergeHistograms {
    signature: Signature,
}

impl AggregateUDFImpl for MergeHistograms {
    fn name(&self) -> &'static str {
        "toll_histogram"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        if !arguments.iter().all(|argument| matches!(argument, DataType::List(_))) {
            return exec_err!("toll_histogram takes the columns hist_bin and hist_n");
        }
        Ok(DataType::Struct(histogram_fields()))
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(MergedBuckets::default()))
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(MergedGroups::default()))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = |part: &str| format!("{}[{part}]", arguments.name);
        Ok(vec![
            Arc::new(Field::new(name("bin"), list_type(), false)),
            Arc::new(Field::new(name("n"), list_type(), false)),
        ])
    }
}

/// Columns of histograms: buckets and their counts.
struct Lists<'a> {
    bins: &'a ListArray,
    counts: &'a ListArray,
}

impl<'a> Lists<'a> {
    fn of(columns: &'a [ArrayRef]) -> Result<Self> {
        let [bins, counts] = columns else { return exec_err!("a histogram has two columns") };
        Ok(Self { bins: bins.as_list(), counts: counts.as_list() })
    }

    /// Of a row; nothing, where it has none.
    fn row(&self, row: usize) -> (&'a [i64], &'a [i64]) {
        if self.bins.is_null(row) || self.counts.is_null(row) {
            return (&[], &[]);
        }
        (values_of(self.bins, row), values_of(self.counts, row))
    }
}

fn values_of(lists: &ListArray, row: usize) -> &[i64] {
    let at = |row: usize| lists.value_offsets()[row] as usize;
    &lists.values().as_primitive::<Int64Type>().values()[at(row)..at(row + 1)]
}

/// Count of each bucket; empty: nothing was added.
#[derive(Debug, Default)]
struct MergedBuckets {
    counts: Vec<u64>,
}

impl MergedBuckets {
    fn add(&mut self, (bins, counts): (&[i64], &[i64])) -> Result<()> {
        if bins.len() != counts.len() {
            return exec_err!("hist_bin has {} buckets and hist_n {}", bins.len(), counts.len());
        }
        if self.counts.is_empty() && !bins.is_empty() {
            self.counts = vec![0; usize::from(BUCKETS)];
        }
        for (&bin, &n) in bins.iter().zip(counts) {
            let Some(count) = usize::try_from(bin).ok().and_then(|bin| self.counts.get_mut(bin)) else {
                return exec_err!("{bin} is no bucket: this version knows {BUCKETS}");
            };
            *count = count.saturating_add(n.max(0).cast_unsigned());
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }
}

/// Buckets that hold values, and their counts: a row for each.
fn to_lists(merged: &[MergedBuckets]) -> (ListArray, ListArray) {
    let mut lists = ListsBuilder::default();
    for MergedBuckets { counts } in merged {
        let held = counts.iter().enumerate().filter(|(_, n)| **n > 0);
        lists.add(held.map(|(bin, n)| (bin as i64, i64::try_from(*n).unwrap_or(i64::MAX))));
    }
    lists.finish()
}

#[derive(Default)]
struct ListsBuilder {
    bins: Vec<i64>,
    counts: Vec<i64>,
    lengths: Vec<usize>,
}

impl ListsBuilder {
    fn add(&mut self, buckets: impl Iterator<Item = (i64, i64)>) {
        let before = self.bins.len();
        for (bin, n) in buckets {
            self.bins.push(bin);
            self.counts.push(n);
        }
        self.lengths.push(self.bins.len() - before);
    }

    fn finish(self) -> (ListArray, ListArray) {
        let field = Arc::new(Field::new_list_field(DataType::Int64, false));
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        let list = |values: Vec<i64>| {
            ListArray::new(Arc::clone(&field), offsets.clone(), Arc::new(Int64Array::from(values)), None)
        };
        (list(self.bins), list(self.counts))
    }
}

fn to_struct((bins, counts): (ListArray, ListArray)) -> StructArray {
    StructArray::new(histogram_fields(), vec![Arc::new(bins), Arc::new(counts)], None)
}

impl Accumulator for MergedBuckets {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let lists = Lists::of(columns)?;
        (0..lists.bins.len()).try_for_each(|row| self.add(lists.row(row)))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Struct(Arc::new(to_struct(to_lists(std::slice::from_ref(self))))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (bins, counts) = to_lists(std::slice::from_ref(self));
        Ok(vec![ScalarValue::List(Arc::new(bins)), ScalarValue::List(Arc::new(counts))])
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes()
    }
}

/// Histogram of each group.
#[derive(Debug, Default)]
struct MergedGroups {
    groups: Vec<MergedBuckets>,
    /// Of all groups' buckets.
    bytes: usize,
}

impl MergedGroups {
    fn take(&mut self, emitted: EmitTo) -> (ListArray, ListArray) {
        let merged = emitted.take_needed(&mut self.groups);
        self.bytes -= merged.iter().map(MergedBuckets::bytes).sum::<usize>();
        to_lists(&merged)
    }
}

fn is_left_out(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_some_and(|filter| filter.is_null(row) || !filter.value(row))
}

impl GroupsAccumulator for MergedGroups {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        group_of_row: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.groups.resize_with(groups, MergedBuckets::default);
        let lists = Lists::of(columns)?;
        for (row, &group) in group_of_row.iter().enumerate() {
            if !is_left_out(filter, row) {
                let merged = &mut self.groups[group];
                let before = merged.bytes();
                merged.add(lists.row(row))?;
                self.bytes += merged.bytes() - before;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_of_row: &[usize], groups: usize) -> Result<()> {
        self.update_batch(states, group_of_row, None, groups)
    }

    fn evaluate(&mut self, emitted: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(to_struct(self.take(emitted))))
    }

    fn state(&mut self, emitted: EmitTo) -> Result<Vec<ArrayRef>> {
        let (bins, counts) = self.take(emitted);
        Ok(vec![Arc::new(bins), Arc::new(counts)])
    }

    fn convert_to_state(&self, columns: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let lists = Lists::of(columns)?;
        let mut rows = ListsBuilder::default();
        for row in 0..lists.bins.len() {
            let (bins, counts) = if is_left_out(filter, row) { (&[][..], &[][..]) } else { lists.row(row) };
            rows.add(bins.iter().copied().zip(counts.iter().copied()));
        }
        let (bins, counts) = rows.finish();
        Ok(vec![Arc::new(bins), Arc::new(counts)])
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<MergedBuckets>() + self.bytes
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Quantile {
    signature: Signature,
}

impl ScalarUDFImpl for Quantile {
    fn name(&self) -> &'static str {
        "toll_quantile"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [histograms, share] = arguments.args.as_slice() else {
            return exec_err!("toll_quantile takes a histogram and a share");
        };
        let ColumnarValue::Scalar(share) = share else { return exec_err!("the share is a constant: 0.99") };
        let ScalarValue::Float64(Some(share)) = share.cast_to(&DataType::Float64)? else {
            return exec_err!("the share is a number from 0 to 1");
        };
        let histograms = histograms.clone().into_array(arguments.number_rows)?;
        let Some(histograms) = histograms.as_struct_opt().filter(|histograms| histograms.num_columns() == 2)
        else {
            return exec_err!("the first argument is a histogram: toll_histogram(hist_bin, hist_n)");
        };
        let (bins, counts) = (histograms.column(0).as_list::<i32>(), histograms.column(1).as_list::<i32>());
        let of_row = |row: usize| {
            let (bins, counts) = (bins.value(row), counts.value(row));
            let (bins, counts) = (bins.as_primitive::<Int64Type>(), counts.as_primitive::<Int64Type>());
            quantile(bins.values(), counts.values(), share)
        };
        let found: Int64Array = (0..histograms.len()).map(of_row).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

/// As `toll digest` has it.
fn quantile(bins: &[i64], counts: &[i64], share: f64) -> Option<i64> {
    let buckets: Option<Vec<(u16, u64)>> = (bins.iter().zip(counts))
        .map(|(bin, n)| Some((u16::try_from(*bin).ok()?, u64::try_from(*n).ok()?)))
        .collect();
    let buckets = buckets.filter(|buckets| !buckets.is_empty())?;
    i64::try_from(Histogram::of_buckets(&buckets)?.quantile(share)).ok()
}
