//! Fuzz target of the pcapng reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toll_fuzz::decode(toll_wire::pcap::Format::PcapNg, input));
