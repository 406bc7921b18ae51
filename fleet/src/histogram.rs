//! SQL functions on histograms of query times: `toll_histogram(hist_bin, hist_n)` merges, `toll_quantile(histogram, q)` reads.
//!
//! Merging adds counts of equal buckets: no error comes of it, in whatever order and over however many threads.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, Int64Builder, ListArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
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
        Ok(Box::new(MergedBuckets { counts: Vec::new() }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = |part: &str| format!("{}[{part}]", arguments.name);
        Ok(vec![
            Arc::new(Field::new(name("bin"), list_type(), false)),
            Arc::new(Field::new(name("n"), list_type(), false)),
        ])
    }
}

/// Count of each bucket; empty: nothing was added.
#[derive(Debug)]
struct MergedBuckets {
    counts: Vec<u64>,
}

impl MergedBuckets {
    /// Adds the buckets of all rows.
    fn add(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let [bins, counts] = columns else { return exec_err!("a histogram has two columns") };
        let (bins, counts) = (bins.as_list::<i32>(), counts.as_list::<i32>());
        if bins.value_offsets() != counts.value_offsets() {
            return self.add_rows(bins, counts);
        }
        // Lists of the same lengths, one after the other: as they are written.
        let range = first_and_last(bins);
        let (bins, counts) =
            (bins.values().as_primitive::<Int64Type>(), counts.values().as_primitive::<Int64Type>());
        self.add_buckets(&bins.values()[range.clone()], &counts.values()[range])
    }

    fn add_rows(&mut self, bins: &ListArray, counts: &ListArray) -> Result<()> {
        for row in 0..bins.len() {
            if bins.is_valid(row) && counts.is_valid(row) {
                let (bins, counts) = (bins.value(row), counts.value(row));
                self.add_buckets(
                    bins.as_primitive::<Int64Type>().values(),
                    counts.as_primitive::<Int64Type>().values(),
                )?;
            }
        }
        Ok(())
    }

    fn add_buckets(&mut self, bins: &[i64], counts: &[i64]) -> Result<()> {
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

    /// Buckets that hold values, and their counts.
    fn lists(&self) -> (ListArray, ListArray) {
        let held = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        let (mut bins, mut counts) = (Int64Builder::new(), Int64Builder::new());
        for (bin, n) in held {
            bins.append_value(bin as i64);
            counts.append_value(i64::try_from(*n).unwrap_or(i64::MAX));
        }
        (one_list(bins.finish()), one_list(counts.finish()))
    }
}

fn first_and_last(lists: &ListArray) -> std::ops::Range<usize> {
    let offsets = lists.value_offsets();
    let at = |offset: Option<&i32>| offset.map_or(0, |offset| *offset as usize);
    at(offsets.first())..at(offsets.last())
}

fn one_list(values: Int64Array) -> ListArray {
    let field = Arc::new(Field::new_list_field(DataType::Int64, false));
    ListArray::new(field, OffsetBuffer::from_lengths([values.len()]), Arc::new(values), None)
}

impl Accumulator for MergedBuckets {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.add(columns)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (bins, counts) = self.lists();
        Ok(ScalarValue::Struct(Arc::new(StructArray::new(
            histogram_fields(),
            vec![Arc::new(bins), Arc::new(counts)],
            None,
        ))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (bins, counts) = self.lists();
        Ok(vec![ScalarValue::List(Arc::new(bins)), ScalarValue::List(Arc::new(counts))])
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.counts.capacity() * size_of::<u64>()
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
