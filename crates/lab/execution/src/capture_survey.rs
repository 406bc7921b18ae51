//! Survey of a capture: packets, bytes, duration, and the send times of missing packets.

use super::loss_tracker::LossTracker;
use anyhow::bail;
use std::path::PathBuf;
use toll_input::Progress;
use toll_net::pcap::capture_reader::CaptureReader;
use toll_net::replay::stamp_of;
use toll_record::{Held, Losses};
use toll_wire::pcap::Link;

/// Result of a survey.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    pub held: Held,
    /// Absent if no packet has a sender's stamp.
    pub losses: Option<Losses>,
}

/// Surveys all files of one capture together, in the order of its packets. A file that ends within a record
/// is counted up to there.
///
/// # Errors
/// A file is not a capture, or is damaged.
pub fn survey_capture(files: &[PathBuf]) -> anyhow::Result<Survey> {
    let (mut held, mut dating) = (Held::default(), LossTracker::default());
    let mut first_ns = None;
    for file in files {
        let mut source = CaptureReader::open(file, &Progress::hidden())?;
        while let Some(time_ns) = source.read_next()? {
            source.take_packet(|frame| {
                let first_ns = *first_ns.get_or_insert(time_ns);
                held.packets += 1;
                held.last_bytes = u64::from(frame.wire_len);
                held.bytes += held.last_bytes;
                held.span_us = held.span_us.max(time_ns.saturating_sub(first_ns) / 1_000);
                dating.add_packet(if frame.link == Link::Ethernet { stamp_of(frame.bytes) } else { None });
                Ok(())
            })?;
        }
        if let Some(damage) = source.damage {
            bail!("{damage}");
        }
    }
    Ok(Survey { held, losses: dating.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_wire::pcap::{Frame, Link, write};

    #[test]
    fn packets_count_with_their_length_on_the_wire_and_a_cut_record_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = write::encode_pcap_header(1).to_vec();
        for (at_us, wire_len) in [(5_u64, 60), (9, 1514), (2_005, 99)] {
            let frame = Frame {
                time_ns: 1_700_000_000_000_000_000 + at_us * 1_000,
                link: Link::Ethernet,
                wire_len,
                bytes: &[7; 40],
            };
            write::append_pcap_record(&mut bytes, &frame).unwrap();
        }
        let put = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let whole = put("whole.pcap", &bytes);
        let expected = Held { packets: 3, bytes: 1_673, last_bytes: 99, span_us: 2_000 };
        assert_eq!(survey_capture(&[whole]).unwrap().held, expected);
        let cut = put("cut.pcap", &bytes[..bytes.len() - 1]);
        assert_eq!(survey_capture(&[cut]).unwrap().held.packets, 2);
        assert!(survey_capture(&[put("text", b"no capture at all")]).is_err());
        assert_eq!(survey_capture(&[]).unwrap(), Survey::default());
    }
}
