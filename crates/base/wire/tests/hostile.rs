//! Commands that a hostile client sends to make a decoder slow or large.

use toll_testkit::wire::{Conversation, EventCollector, ok, pcap, protocol_packet, result};

fn command(code: u8, rest: &[&[u8]]) -> Vec<u8> {
    protocol_packet(0, &[&[code], rest.concat().as_slice()].concat())
}

#[test]
fn long_data_for_each_of_65535_parameters_is_found_without_a_search() {
    const PARAMS: u16 = u16::MAX;
    let mut talk = Conversation::logged_in();
    talk.client(&command(0x16, &[b"insert into t values (?)"]));
    // Without definitions of the parameters, as a client may ask.
    talk.server(&protocol_packet(1, &[0, 7, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]));
    let blocks: Vec<u8> = (0..PARAMS)
        .rev()
        .flat_map(|param| command(0x18, &[&[7, 0, 0, 0], &param.to_le_bytes(), b"v"]))
        .collect();
    for segment in blocks.chunks(60_000) {
        talk.client(segment);
    }
    let nulls = vec![0; usize::from(PARAMS).div_ceil(8)];
    let types = [0xfb, 0].repeat(PARAMS.into());
    for segment in command(0x17, &[&[7, 0, 0, 0, 0, 1, 0, 0, 0], &nulls, &[1], &types]).chunks(60_000) {
        talk.client(segment);
    }
    talk.server(&protocol_packet(1, &ok(1)));
    let events = EventCollector::decode(&pcap(talk.frames()));
    let execute = events.list.iter().find(|event| !event.params.is_empty()).unwrap();
    assert_eq!(execute.params, ["'v'"].repeat(PARAMS.into()).join(", "));
}

#[test]
fn a_schema_of_any_length_is_kept_up_to_a_bound() {
    let mut talk = Conversation::logged_in();
    for segment in command(0x02, &[&vec![b's'; 1 << 20]]).chunks(60_000) {
        talk.client(segment);
    }
    talk.server(&protocol_packet(1, &ok(0)));
    talk.client(&command(0x03, &[b"select 1"]));
    talk.server(&result(&["1"]));
    let events = EventCollector::decode(&pcap(talk.frames()));
    assert_eq!(events.find_only("select 1").schema.len(), 512);
}
