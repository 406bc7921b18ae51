//! Output of single events as JSON lines, CSV rows or slow log entries, as they arrive.

use super::json::{format_time, kind_name, lossy_text};
use super::schema::is_zero;
use super::{Format, Request, csv};
use serde::Serialize;
use std::io::{self, Write};
use toll_wire::event::{CommandKind, Event, Sink};
use toll_wire::fingerprint::{QueryId, fingerprint_in_mode};

/// Writes events instead of digesting them. The first error to write ends the output.
pub struct EventPrinter<'a> {
    format: Format,
    literals: bool,
    out: &'a mut dyn Write,
    fingerprint: Vec<u8>,
    error: Option<io::Error>,
}

/// JSON schema of an event: a promise. Times are microseconds.
#[derive(Debug, Serialize)]
struct JsonEvent {
    time: Option<String>,
    kind: &'static str,
    id: String,
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    /// Bytes of the statement that were not kept.
    #[serde(skip_serializing_if = "is_zero")]
    query_cut: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<String>,
    query_time_us: Option<f64>,
    first_byte_time_us: Option<f64>,
    lock_time_us: Option<f64>,
    user: String,
    host: String,
    port: u16,
    db: String,
    connection_id: Option<u64>,
    bytes_received: u64,
    bytes_sent: u64,
    rows_sent: Option<u64>,
    rows_examined: Option<u64>,
    rows_affected: Option<u64>,
    warnings: Option<u32>,
    error: Option<u16>,
    sqlstate: Option<String>,
    tainted: bool,
}

impl<'a> EventPrinter<'a> {
    pub fn new(request: &Request, out: &'a mut dyn Write) -> Self {
        Self { format: request.format, literals: request.literals, out, fingerprint: Vec::new(), error: None }
    }

    /// # Errors
    /// The output took no more.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// The line that comes before all events.
    pub fn write_header(&mut self) -> io::Result<()> {
        if self.format == Format::Csv {
            write!(
                self.out,
                "time,kind,id,query,query_time_us,user,host,db,rows_sent,rows_affected,error,tainted\r\n"
            )?;
        }
        Ok(())
    }

    fn write_event(&mut self, event: &Event<'_>) -> io::Result<()> {
        fingerprint_in_mode(event.text, event.backslashes, &mut self.fingerprint);
        match self.format {
            Format::Slowlog => self.write_slowlog(event),
            Format::Csv => self.write_csv(event),
            Format::Report | Format::Json | Format::Ndjson => self.write_json(event),
        }
    }

    fn write_json(&mut self, event: &Event<'_>) -> io::Result<()> {
        let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1_000.0);
        let event = JsonEvent {
            time: format_time(event.start_ns),
            kind: kind_name(event.kind),
            id: QueryId::from_fingerprint(&self.fingerprint).to_string(),
            fingerprint: lossy_text(&self.fingerprint),
            query: self.literals.then(|| lossy_text(event.text)),
            query_cut: if self.literals { event.text_cut } else { 0 },
            params: (self.literals && !event.params.is_empty()).then(|| lossy_text(event.params)),
            query_time_us: us(event.query_ns),
            first_byte_time_us: us(event.first_byte_ns),
            lock_time_us: us(event.lock_ns),
            user: lossy_text(event.user),
            host: lossy_text(event.host),
            port: event.port,
            db: lossy_text(event.db),
            connection_id: event.connection_id,
            bytes_received: event.bytes_from_client,
            bytes_sent: event.bytes_from_server,
            rows_sent: event.rows_sent,
            rows_examined: event.rows_examined,
            rows_affected: event.rows_affected,
            warnings: event.warnings,
            error: event.error.map(|error| error.number),
            sqlstate: event
                .error
                .filter(|error| !error.state.is_empty())
                .map(|error| lossy_text(error.state)),
            tainted: event.tainted,
        };
        serde_json::to_writer(&mut *self.out, &event)?;
        writeln!(self.out)
    }

    fn statement_text<'e>(&'e self, event: &Event<'e>) -> &'e [u8] {
        if self.literals { event.text } else { &self.fingerprint }
    }

    fn write_csv(&mut self, event: &Event<'_>) -> io::Result<()> {
        let quoted = |bytes: &[u8]| csv::quote(&lossy_text(bytes));
        let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
        let row = [
            format_time(event.start_ns).unwrap_or_default(),
            kind_name(event.kind).to_owned(),
            QueryId::from_fingerprint(&self.fingerprint).to_string(),
            quoted(self.statement_text(event)),
            event.query_ns.map(|ns| (ns as f64 / 1_000.0).to_string()).unwrap_or_default(),
            quoted(event.user),
            quoted(event.host),
            quoted(event.db),
            number(event.rows_sent),
            number(event.rows_affected),
            event.error.map(|error| error.number.to_string()).unwrap_or_default(),
            event.tainted.to_string(),
        ];
        write!(self.out, "{}\r\n", row.join(","))
    }

    /// An entry that slow log readers, toll among them, read back.
    fn write_slowlog(&mut self, event: &Event<'_>) -> io::Result<()> {
        let seconds = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e9;
        if let Some(time) = format_time(event.start_ns) {
            writeln!(self.out, "# Time: {time}")?;
        }
        let user = lossy_text(event.user);
        writeln!(
            self.out,
            "# User@Host: {user}[{user}] @ {} []  Id: {}",
            lossy_text(event.host),
            event.connection_id.unwrap_or(0)
        )?;
        writeln!(
            self.out,
            "# Query_time: {:.6}  Lock_time: {:.6} Rows_sent: {}  Rows_examined: {}  Rows_affected: {}  Bytes_sent: {}",
            seconds(event.query_ns),
            seconds(event.lock_ns),
            event.rows_sent.unwrap_or(0),
            event.rows_examined.unwrap_or(0),
            event.rows_affected.unwrap_or(0),
            event.bytes_from_server
        )?;
        if !event.db.is_empty() {
            writeln!(self.out, "use {};", lossy_text(event.db))?;
        }
        writeln!(self.out, "SET timestamp={};", event.start_ns / 1_000_000_000)?;
        if event.kind == CommandKind::Admin {
            write!(self.out, "# ")?;
        }
        let shown = self.statement_text(event).to_vec();
        self.out.write_all(&shown)?;
        writeln!(self.out, ";")
    }
}

impl Sink for EventPrinter<'_> {
    fn on_event(&mut self, event: &Event<'_>) {
        if self.error.is_none() {
            self.error = self.write_event(event).err();
        }
    }
}
