//! How do files and streams become a digest? Opens, feeds and prints; decodes nothing itself.

pub mod count;
mod csv;
mod decode;
mod input;
mod json;
mod ledger;
mod lines;
mod pump;
mod report;
mod report_class;
mod scale;
mod select;
mod when;
mod zone;

pub use input::Type;
pub use ledger::Ledger;
pub use when::When;

use anyhow::Context;
use decode::Decode;
use input::Input;
use select::Select;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use toll_wire::decoder::Config;
use toll_wire::digest::{Digest, Limit, Settings};

/// What the verb was asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub files: Vec<PathBuf>,
    pub kind: Option<Type>,
    /// Ports and addresses of servers, for captures.
    pub capture: Config,
    pub settings: Settings,
    pub limit: Limit,
    pub since: Option<When>,
    pub until: Option<When>,
    pub format: Format,
    pub literals: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people, in the shape of pt-query-digest's
    Report,
    /// One object: totals, classes, ledger
    Json,
    /// A line for each class, then totals and ledger
    Ndjson,
    /// A row for each class
    Csv,
    /// Events as a slow log
    Slowlog,
}

/// A digest and where it came from.
pub struct Digested {
    pub digest: Digest,
    pub ledger: Ledger,
    pub inputs: Vec<Source>,
    pub interrupted: bool,
}

/// One file or stream that was read.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Source {
    pub name: String,
    pub r#type: &'static str,
    /// Bytes read, after decompression.
    pub bytes: u64,
}

/// Reads everything that was asked for. `stop` ends it early with what was seen.
pub fn digest(request: &Request, stop: &AtomicBool) -> anyhow::Result<Digested> {
    let mut done = Digested {
        digest: Digest::new(request.settings),
        ledger: Ledger::default(),
        inputs: Vec::new(),
        interrupted: false,
    };
    for path in &request.files {
        let input =
            Input::open(path, request.kind).with_context(|| format!("cannot digest {}", path.display()))?;
        let mut decode = Decode::new(input.kind, &request.capture);
        let mut sink = Select::new(request, &mut done.digest);
        let pumped = pump::pump(input.reader, input.plain_bytes.is_none(), &mut decode, &mut sink, stop)
            .with_context(|| format!("cannot read {}", input.name))?;
        done.inputs.push(Source { name: input.name, r#type: input.kind.name(), bytes: pumped.bytes });
        done.ledger.merge(&decode.ledger());
        if pumped.interrupted {
            done.interrupted = true;
            break;
        }
    }
    Ok(done)
}

/// Writes a digest in the format that was asked for.
pub fn print(request: &Request, done: &Digested, out: &mut dyn Write) -> anyhow::Result<()> {
    match request.format {
        Format::Report => report::write(request, done, out)?,
        Format::Json => json::write(request, done, out)?,
        Format::Ndjson => lines::write(request, done, out)?,
        Format::Csv => csv::write(request, done, out)?,
        Format::Slowlog => anyhow::bail!("the format slowlog holds events: add --events"),
    }
    out.flush()?;
    Ok(())
}
