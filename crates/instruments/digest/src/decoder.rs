//! Decoders by input type, with one interface for captures and logs: bytes to events.

use super::accounting::{CaptureAccounting, InputAccounting};
use super::input::Type;
use anyhow::bail;
use toll_input::{ByteConsumer, SystemZone};
use toll_wire::decoder::{CaptureDecoder, Config};
use toll_wire::event::Sink;
use toll_wire::log::{AuditLog, GeneralLog, Log, SlowLog};
use toll_wire::pcap::Format;
use toll_wire::queries::Reader;

pub enum InputDecoder {
    Capture(Box<CaptureDecoder>, Option<String>),
    Queries(Box<Reader>),
    SlowLog(Box<SlowLog<SystemZone>>),
    Log(Box<dyn Log + Send>),
}

impl InputDecoder {
    /// # Errors
    /// The type holds no events.
    pub fn new(kind: Type, config: &Config) -> anyhow::Result<Self> {
        let capture = |format| {
            let decoder = CaptureDecoder::with_zone(format, config, Box::new(SystemZone::detect()));
            Self::Capture(Box::new(decoder), None)
        };
        Ok(match kind {
            Type::Pcap => capture(Format::Pcap),
            Type::Pcapng => capture(Format::PcapNg),
            Type::Tcpdump => capture(Format::TcpdumpText),
            Type::Queries => Self::Queries(Box::default()),
            Type::Slowlog => Self::SlowLog(Box::new(SlowLog::new(SystemZone::detect()))),
            Type::Genlog => Self::Log(Box::new(GeneralLog::new(SystemZone::detect()))),
            Type::Auditlog => Self::Log(Box::new(AuditLog::new(SystemZone::detect()))),
            Type::Digest => {
                bail!("a digest has no single events: name the captures or logs that it was made of")
            }
        })
    }

    /// For a part of a slow log: until an entry names a schema, it is the one of the part before.
    pub fn slow_log_from_middle() -> Self {
        Self::SlowLog(Box::new(SlowLog::from_middle(SystemZone::detect())))
    }

    /// The schema that the next entry of a slow log would inherit.
    pub fn db(&self) -> &[u8] {
        match self {
            Self::SlowLog(log) => log.db(),
            Self::Log(_) | Self::Capture(..) | Self::Queries(_) => b"",
        }
    }

    /// Binds the decoder to the sink of its events.
    pub fn with_sink<'a>(&'a mut self, sink: &'a mut dyn Sink) -> DecodingReader<'a> {
        DecodingReader { decode: self, sink }
    }

    /// Accounting of the bytes; complete after the end.
    pub fn accounting(&self) -> InputAccounting {
        match self {
            Self::SlowLog(log) => InputAccounting::from_log(log.accounting()),
            Self::Log(log) => InputAccounting::from_log(log.accounting()),
            Self::Queries(reader) => InputAccounting::from_queries(reader.accounting()),
            Self::Capture(capture, damage) => InputAccounting::from_capture(CaptureAccounting {
                counts: capture.accounting(),
                unread_tail: capture.unread_tail_bytes(),
                dropped_by_capture: capture.dropped_by_capture(),
                damage: damage.iter().cloned().collect(),
            }),
        }
    }
}

/// A decoder with its sink.
pub struct DecodingReader<'a> {
    decode: &'a mut InputDecoder,
    sink: &'a mut dyn Sink,
}

impl ByteConsumer for DecodingReader<'_> {
    fn consume(&mut self, bytes: &[u8], end: bool) -> usize {
        let sink = &mut *self.sink;
        match self.decode {
            InputDecoder::SlowLog(log) => log.decode(bytes, end, sink),
            InputDecoder::Log(log) => log.decode(bytes, end, sink),
            InputDecoder::Queries(reader) => {
                reader.feed(bytes, sink);
                if end {
                    reader.finish();
                }
                bytes.len()
            }
            InputDecoder::Capture(capture, damage) => {
                if damage.is_none()
                    && let Err(error) = capture.feed(bytes, sink)
                {
                    *damage = Some(error.to_string());
                }
                if end {
                    capture.finish(sink);
                }
                bytes.len()
            }
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.decode, InputDecoder::Capture(_, Some(_)))
    }
}
