//! Fuzz target of the pcap reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toll_fuzz::decode(toll_wire::pcap::Format::Pcap, input));
