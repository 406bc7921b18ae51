//! Option `--parquet` of `toll digest`: digests of recorded events as Parquet files.

use crate::console::eprint_line;
use crate::exit_code;
use crate::reading_progress::reading_progress;
use clap::Args;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toll_digest::{InputEdge, Request};
use toll_sys::count_format::format_count;
use toll_sys::units;
use toll_tables::{Location, Source, SplittingSink, TableWriter, id_of_files};

/// A set of files covers a stretch, and no less than this.
const FLUSH_INTERVAL: Duration = Duration::from_secs(3_600);

#[derive(Debug, Args)]
pub struct TableArguments {
    /// Write a digest of each stretch of time to tables in this directory or bucket, as Parquet files, instead of printing one
    #[arg(long = "parquet", value_name = "DIR|s3://BUCKET/PREFIX", help_heading = "Output")]
    // Files have the names of their log: a part of it would take the place of the whole, or count beside it.
    #[arg(conflicts_with_all = ["since", "until", "filter"])]
    #[arg(conflicts_with_all = ["group_by", "order_by", "limit", "format", "json", "events", "literals", "compare", "compare_at"])]
    tables: Option<Location>,
    /// Length of such a stretch
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "10m")]
    #[arg(requires = "tables", help_heading = "Output")]
    every: Duration,
    /// The host that the files are of [default: this one]
    #[arg(long, value_name = "NAME", requires = "tables", help_heading = "Output")]
    host: Option<String>,
    /// The cluster that this host belongs to [default: default]
    #[arg(long, value_name = "NAME", requires = "tables", help_heading = "Output")]
    cluster: Option<String>,
}

/// Where tables are written to.
pub struct TablePlace {
    root: Location,
    every: Duration,
    host: Option<String>,
    cluster: Option<String>,
}

impl TableArguments {
    pub fn place(self) -> Option<TablePlace> {
        let Self { tables, every, host, cluster } = self;
        tables.map(|root| TablePlace { root, every, host, cluster })
    }
}

impl TablePlace {
    /// Reads the events of the request, and writes their digests.
    ///
    /// # Errors
    /// An input cannot be read, or nothing can be written.
    pub fn write(self, request: &Request, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        self.root.create()?;
        let source = Source {
            host: self.host.unwrap_or_else(|| toll_sys::read_trimmed("/proc/sys/kernel/hostname")),
            cluster: self.cluster.unwrap_or_else(|| "default".into()),
            source: "",
            id: id_of_files(&request.files)?,
        };
        let writer = TableWriter::open(self.root.open()?, source, self.every.max(FLUSH_INTERVAL))?;
        let mut sink = SplittingSink::new(writer, self.every, stop);
        let progress = reading_progress(&request.files);
        let read = toll_digest::read_events(request, &progress, stop, &mut sink, |sink, edge| match edge {
            InputEdge::Begin(kind) => {
                sink.begin_input(kind.name());
                Ok(())
            }
            InputEdge::End(accounting) => sink.end_input(accounting.lost()),
        });
        // A full disk ends the reading, too: its error comes first.
        let written = read.and_then(|interrupted| sink.finish().map(|()| interrupted));
        progress.finish();
        let interrupted = written?;
        eprint_line!(
            "toll: {} of {} written to {}",
            format_count(sink.rows(), "row"),
            format_count(sink.stretches(), "interval"),
            self.root
        );
        if sink.untimed() > 0 {
            eprint_line!("toll: {} without a time: in no table", format_count(sink.untimed(), "event"));
        }
        if interrupted {
            eprint_line!("toll: interrupted; the tables hold what was read until then");
            return Ok(ExitCode::from(exit_code::INTERRUPTED));
        }
        Ok(ExitCode::SUCCESS)
    }
}
