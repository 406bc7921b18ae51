//! Tables that a capture writes its digests to.

use super::TapKind;
use crate::table_options::TableOptions;
use std::sync::Arc;
use std::time::Duration;
use toll_sys::named_choice::NamedChoice;
use toll_tables::{Source, Store, TableWriter};

/// Time that a set of files covers.
const FLUSH_INTERVAL: Duration = Duration::from_secs(600);

/// # Errors
/// Nothing can be written there.
pub fn open_tables(
    store: Arc<dyn Store>,
    options: &TableOptions,
    tap: TapKind,
) -> anyhow::Result<TableWriter> {
    let source = Source {
        host: toll_sys::read_trimmed("/proc/sys/kernel/hostname"),
        cluster: options.cluster.clone(),
        source: tap.name(),
        id: toll_sys::private_dir::random_bytes()?,
    };
    TableWriter::open(store, source, FLUSH_INTERVAL)
}
