//! Pipelining tests: a response is never assigned to the wrong command.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;
use toll_testkit::wire::{
    Conversation, DecodedEvent, EventCollector, pcap, prepare_response, protocol_packet, result,
};

/// What a client has sent, and what its server will answer.
#[derive(Clone, Copy)]
enum SentCommand {
    Query,
    Prepare,
    Execute,
}

/// Both ends of a connection. Texts are distinct; neighbours differ in rows.
struct PipelinedClient {
    talk: Conversation,
    /// Where messages are cut into segments.
    cuts: std::iter::Cycle<std::vec::IntoIter<usize>>,
    sent: Vec<SentCommand>,
    answered: usize,
    /// A statement whose id the client has been told.
    prepared_id: Option<u8>,
    /// Frames by which the decoder knows how this client works.
    learning_frames: usize,
}

impl PipelinedClient {
    fn new(cuts: &[usize]) -> Self {
        PipelinedClient {
            talk: Conversation::logged_in(),
            cuts: Vec::from(cuts).into_iter().cycle(),
            sent: Vec::new(),
            answered: 0,
            prepared_id: None,
            learning_frames: 0,
        }
    }

    fn send_message(&mut self, from_client: bool, message: &[u8]) {
        let mut rest = message;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(self.cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
            if from_client {
                self.talk.client(head)
            } else {
                self.talk.server(head)
            };
            rest = tail;
        }
    }

    fn send(&mut self) {
        let n = self.sent.len();
        let (sent, message) = match (n % 4, self.prepared_id) {
            (1, _) => (SentCommand::Prepare, format!("\x16select {n} from t").into_bytes()),
            (3, Some(id)) => (SentCommand::Execute, vec![0x17, id, 0, 0, 0, 0, 1, 0, 0, 0]),
            _ => (SentCommand::Query, format!("\x03select {n} from t").into_bytes()),
        };
        self.sent.push(sent);
        self.send_message(true, &protocol_packet(0, &message));
    }

    fn answer(&mut self) {
        let n = self.answered;
        self.answered += 1;
        match self.sent[n] {
            SentCommand::Prepare => {
                self.send_message(false, &prepare_response(n as u8, 0, 1));
                self.prepared_id = Some(n as u8);
            }
            SentCommand::Query | SentCommand::Execute => {
                self.send_message(false, &result(&vec!["some value"; n % 5]))
            }
        }
    }

    /// All commands of a burst, then all their responses.
    fn bursts(sizes: &[usize], cuts: &[usize]) -> Self {
        let mut ahead = Self::new(cuts);
        for &size in sizes {
            (0..size).for_each(|_| ahead.send());
            (0..size).for_each(|_| ahead.answer());
            if ahead.learning_frames == 0 {
                ahead.learning_frames = ahead.talk.frames().len();
            }
        }
        ahead
    }

    /// `depth` commands, then a further one after each response.
    fn stream(depth: usize, count: usize, cuts: &[usize]) -> Self {
        let mut ahead = Self::new(cuts);
        (0..depth).for_each(|_| ahead.send());
        for _ in depth..count {
            ahead.answer();
            ahead.send();
            if ahead.learning_frames == 0 {
                ahead.learning_frames = ahead.talk.frames().len();
            }
        }
        (0..depth).for_each(|_| ahead.answer());
        ahead
    }

    fn events(&self) -> EventCollector {
        EventCollector::decode(&pcap(self.talk.frames()))
    }

    fn events_without(&self, lost: impl Fn(usize) -> bool) -> EventCollector {
        let frames = self.talk.frames().iter().enumerate();
        let kept: Vec<_> = frames.filter(|(at, _)| !lost(*at)).map(|(_, frame)| frame.clone()).collect();
        EventCollector::decode(&pcap(&kept))
    }
}

/// Whether `event` is one of `whole`, but for a text that was not captured.
fn is_in(event: &DecodedEvent, whole: &EventCollector) -> bool {
    whole.list.iter().any(|truth| {
        let unseen = event.text.ends_with("(text not seen)");
        let text = if unseen { &truth.text } else { &event.text };
        DecodedEvent { text: text.clone(), ..event.clone() } == *truth
    })
}

fn no_event_is_false(ahead: &PipelinedClient, lost: &[usize]) -> Result<(), TestCaseError> {
    let whole = ahead.events();
    prop_assert!(whole.list.iter().all(|event| !event.tainted));
    prop_assert_eq!(whole.list.len(), ahead.sent.len() + 1);
    let left = ahead.talk.frames().len() - ahead.learning_frames;
    let lost: Vec<_> = lost.iter().map(|at| ahead.learning_frames + at % left).collect();
    let seen = ahead.events_without(|at| lost.contains(&at));
    for event in seen.list.iter().filter(|event| !event.tainted && event.query_ns.is_some()) {
        prop_assert!(is_in(event, &whole), "{event:?} never happened, with {lost:?} lost");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn whatever_is_lost_of_bursts_no_clean_event_is_wrong(
        sizes in prop::collection::vec(2usize..6, 2..12),
        cuts in prop::collection::vec(4usize..60, 1..8),
        lost in prop::collection::vec(0usize..1000, 1..8),
    ) {
        no_event_is_false(&PipelinedClient::bursts(&sizes, &cuts), &lost)?;
    }

    #[test]
    fn whatever_is_lost_of_a_stream_no_clean_event_is_wrong(
        depth in 2usize..6,
        count in 10usize..60,
        cuts in prop::collection::vec(4usize..60, 1..8),
        lost in prop::collection::vec(0usize..1000, 1..8),
    ) {
        no_event_is_false(&PipelinedClient::stream(depth, count, &cuts), &lost)?;
    }
}

/// What became of each command, by its number: believed or tainted.
fn tainted_by_number(events: &EventCollector) -> BTreeMap<usize, bool> {
    let number = |event: &DecodedEvent| event.text.split(' ').nth(1)?.parse::<usize>().ok();
    events.list.iter().filter_map(|event| Some((number(event)?, !event.tainted))).collect()
}

/// Frames of the login, in front of all commands.
const LOGIN: usize = 6;

/// Bursts of three queries each, none of them prepared.
fn plain_bursts(count: usize) -> Conversation {
    let mut talk = Conversation::logged_in();
    for burst in 0..count {
        let numbers = burst * 3..burst * 3 + 3;
        for n in numbers.clone() {
            talk.client(&protocol_packet(0, format!("\x03select {n} from t").as_bytes()));
        }
        for n in numbers {
            talk.server(&result(&vec!["some value"; n]));
        }
    }
    talk
}

fn without(talk: &Conversation, lost: usize) -> EventCollector {
    let mut frames = talk.frames().to_vec();
    frames.remove(lost);
    EventCollector::decode(&pcap(&frames))
}

#[test]
fn a_client_that_sends_bursts_is_believed_again_after_a_few() {
    // The second command of the second burst.
    let seen = tainted_by_number(&without(&plain_bursts(8), LOGIN + 6 + 1));
    assert!(!seen.contains_key(&4));
    for (n, believed) in seen {
        assert_eq!(believed, !(3..15).contains(&n), "command {n}");
    }
}

#[test]
fn a_burst_that_lost_its_head_is_not_believed_though_no_other_was_seen_before() {
    let seen = tainted_by_number(&without(&plain_bursts(1), LOGIN));
    assert_eq!(seen, BTreeMap::from([(1, false), (2, false)]));
}

#[test]
fn a_client_that_never_waits_for_all_is_not_believed_after_a_loss() {
    let mut talk = Conversation::logged_in();
    let mut sent = 0;
    let mut send = |talk: &mut Conversation| {
        talk.client(&protocol_packet(0, format!("\x03select {sent} from t").as_bytes()));
        sent += 1;
    };
    (0..3).for_each(|_| send(&mut talk));
    for n in 0..17 {
        talk.server(&result(&vec!["some value"; n]));
        send(&mut talk);
    }
    for n in 17..20 {
        talk.server(&result(&vec!["some value"; n]));
    }
    // Three commands, then response and command in turn: the seventh command.
    let seen = tainted_by_number(&without(&talk, LOGIN + 3 + 7));
    assert!(!seen.contains_key(&6));
    for (n, believed) in seen {
        assert_eq!(believed, n < 4, "command {n}");
    }
}
