//! Selection of a capture's packets between two times.

use super::capture_reader::CaptureReader;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use toll_input::Progress;
use toll_wire::pcap::write;

/// Writes them as a pcap, up to the first that comes after the last moment (Unix ns). False: there are none, they are more than
/// `most_bytes`, or they are of several link types, of which a pcap has one.
///
/// # Errors
/// It is no capture, or it cannot be copied.
pub fn copy_time_range(
    capture: &Path,
    mut target: impl Write,
    span: &Range<u64>,
    most_bytes: u64,
) -> anyhow::Result<bool> {
    let mut source = CaptureReader::open(capture, &Progress::hidden())?;
    let (mut link, mut written, mut record) = (None, 0, Vec::new());
    while let Some(time_ns) = source.read_next()? {
        if time_ns >= span.end {
            break;
        }
        if time_ns < span.start {
            continue;
        }
        let its_link = source.interface().map(|interface| interface.link);
        if let (None, Some(its_link)) = (link, its_link) {
            target.write_all(&write::encode_pcap_header(its_link))?;
            link = Some(its_link);
        }
        source.take_packet(|frame| Ok(write::append_pcap_record(&mut record, frame)?))?;
        written += record.len() as u64;
        if link != its_link || written > most_bytes {
            return Ok(false);
        }
        target.write_all(&record)?;
        record.clear();
    }
    target.flush()?;
    Ok(written > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_wire::pcap::{Format, Frame, Interface, Link, Reader};

    fn frame(time_ns: u64) -> Frame<'static> {
        Frame { time_ns, link: Link::Raw, wire_len: 1500, bytes: &[0x45; 60] }
    }

    fn of_link(link: u16) -> Interface<'static> {
        Interface { number: 0, link, snap_len: 0, name: b"lo" }
    }

    /// Times of the packets that are cut out of such a file between 20 and 40.
    fn times(file: &[u8], most_bytes: u64) -> Option<Vec<u64>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture");
        std::fs::write(&path, file).unwrap();
        let mut written = Vec::new();
        if !copy_time_range(&path, &mut written, &(20..40), most_bytes).unwrap() {
            return None;
        }
        let mut found = Vec::new();
        Reader::new(Format::Pcap)
            .feed(&written, &mut |frame| {
                assert_eq!((frame.link, frame.wire_len, frame.bytes.len()), (Link::Raw, 1500, 60));
                found.push(frame.time_ns);
            })
            .unwrap();
        Some(found)
    }

    #[test]
    fn packets_between_two_moments_are_copied_from_either_format_into_a_pcap() {
        let mut pcap = write::encode_pcap_header(101).to_vec();
        let mut ng = Vec::new();
        write::append_ng_section(&mut ng);
        write::append_ng_interface(&mut ng, &of_link(101));
        for time_ns in [10, 20, 30, 40, 35] {
            write::append_pcap_record(&mut pcap, &frame(time_ns)).unwrap();
            write::append_ng_packet(&mut ng, 0, &frame(time_ns));
        }
        for file in [&pcap, &ng] {
            assert_eq!(times(file, 1 << 20), Some(vec![20, 30]));
            assert_eq!(times(file, 100), None, "two records are more than 100 bytes");
            assert_eq!(times(&file[..file.len() - 1], 1 << 20), Some(vec![20, 30]), "its end is cut off");
        }
        assert_eq!(times(&write::encode_pcap_header(101), 1 << 20), None);
    }

    #[test]
    fn packets_of_two_link_types_are_not_for_one_pcap() {
        let mut ng = Vec::new();
        write::append_ng_section(&mut ng);
        write::append_ng_interface(&mut ng, &of_link(101));
        write::append_ng_interface(&mut ng, &of_link(1));
        write::append_ng_packet(&mut ng, 0, &frame(20));
        assert_eq!(times(&ng, 1 << 20), Some(vec![20]));
        write::append_ng_packet(&mut ng, 1, &frame(30));
        assert_eq!(times(&ng, 1 << 20), None);
    }
}
