//! Fuzz target of capture profiles: sums add up, memory is bounded, and the parts agree with each other.
#![no_main]

use toll_wire::pcap::{Format, Reader};
use toll_wire::profile::{LengthKind, Profile, Transport};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // The first byte says what the rest is, so that a mutation need not find a magic number.
    let Some((format, rest)) = input.split_first() else { return };
    let format = match format % 3 {
        0 => Format::Pcap,
        1 => Format::PcapNg,
        _ => Format::TcpdumpText,
    };
    let mut reader = Reader::new(format);
    let mut profile = Profile::new();
    let mut frames = 0;
    for chunk in rest.chunks(700) {
        let fed = reader.feed(chunk, &mut |frame| {
            frames += 1;
            profile.add_frame(frame);
        });
        if fed.is_err() {
            break;
        }
    }
    reader.finish(&mut |frame| {
        frames += 1;
        profile.add_frame(frame);
    });
    assert_eq!(profile.total.packets, frames);
    assert!(profile.is_consistent(), "{profile:#?}");
    assert!(profile.rates.bins().len() <= 5_000);
    let in_bins: u64 = profile.lengths.bins().iter().flatten().sum();
    let longer: u64 = profile.lengths.longer.iter().map(|sum| sum.packets).sum();
    assert_eq!(in_bins + longer, frames);
    for transport in [Transport::Tcp, Transport::Udp] {
        let ports = profile.top_ports(transport, usize::MAX);
        assert!(ports.iter().map(|(_, sum)| sum.packets).sum::<u64>() <= frames);
    }
    let top = profile.lengths.most_frequent(LengthKind::Tcp, usize::MAX);
    assert!(top.is_sorted_by_key(|&(_, packets)| std::cmp::Reverse(packets)));
    let flows = profile.flows.largest(usize::MAX);
    assert!(flows.iter().all(|flow| flow.first_ns <= flow.last_ns && flow.sum.packets > 0));
});
