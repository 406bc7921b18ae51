//! Result of one stream, and its missing chunks.

use super::item_noun;
use serde::{Serialize, Serializer};
use std::path::PathBuf;
use toll_sys::count_format::format_count;
use toll_sys::number_format;
use toll_wire::stream_protocol::StreamContent;

/// `toll receive --json`, an object a stream; a promise.
#[derive(Debug, Clone, Serialize)]
pub struct StreamSummary {
    /// Name of the sender, as it reports it.
    pub host: String,
    #[serde(serialize_with = "in_a_word")]
    pub holds: StreamContent,
    /// The newest.
    pub files: Vec<PathBuf>,
    /// Files before these, which are still there.
    #[serde(skip_serializing_if = "is_zero")]
    pub older_files: u64,
    /// Packets or events that were written.
    pub items: u64,
    pub chunks: u64,
    /// Over the network, chunks that came twice included.
    pub received_bytes: u64,
    pub written_bytes: u64,
    /// Packets or events that the sender dropped, as it reports.
    pub lost: u64,
    /// Chunks that an earlier receiver acknowledged: they are in its files, if anywhere.
    pub chunks_before: u64,
    /// Chunks that came again after a broken connection, and were left out.
    pub chunks_again: u64,
    pub connections: u64,
    /// Of the first and last item, Unix nanoseconds; absent where none came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ns: Option<u64>,
    /// The sender ended the stream, and everything is written.
    pub whole: bool,
}

fn in_a_word<S: Serializer>(holds: &StreamContent, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match holds {
        StreamContent::Pcapng => "pcapng",
        StreamContent::Queries => "queries",
    })
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl StreamSummary {
    pub fn new(host: String, holds: StreamContent) -> Self {
        Self {
            host,
            holds,
            files: Vec::new(),
            older_files: 0,
            items: 0,
            chunks: 0,
            received_bytes: 0,
            written_bytes: 0,
            lost: 0,
            chunks_before: 0,
            chunks_again: 0,
            connections: 0,
            first_ns: None,
            last_ns: None,
            whole: false,
        }
    }

    /// A sentence or two.
    pub fn render_text(&self) -> String {
        let noun = item_noun(self.holds);
        let mut text = format!(
            "{}: {} {noun}s in {}, {} MB received and {} MB written",
            self.host,
            number_format::format_grouped(self.items as f64),
            format_count(self.chunks, "chunk"),
            number_format::format_megabytes(self.received_bytes as f64),
            number_format::format_megabytes(self.written_bytes as f64),
        );
        match self.files.as_slice() {
            [] => {}
            [file] => text += &format!(" to {}", file.display()),
            [.., last] => {
                text += &format!(
                    " to {}, the last {}",
                    format_count(self.files.len() as u64 + self.older_files, "file"),
                    last.display()
                )
            }
        }
        text += match self.lost {
            0 => "; nothing lost on the way".to_owned(),
            lost => {
                format!("; {} dropped by the sender (buffer full)", format_count(lost, noun))
            }
        }
        .as_str();
        if self.connections > 1 {
            let (times, again) =
                (format_count(self.connections - 1, "time"), format_count(self.chunks_again, "chunk"));
            text += &format!("; the connection broke {times}, {again} came twice and were written once");
        }
        if self.chunks_before > 0 {
            text += &format!(
                "; {} before these went to another receiver",
                format_count(self.chunks_before, "chunk")
            );
        }
        if !self.whole {
            text += "; the end of the stream is missing: more may have been captured";
        }
        text
    }
}
