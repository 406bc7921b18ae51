//! Event selection by time range and filter.

use super::Request;
use toll_wire::event::{Event, SampleShare, Sink};
use toll_wire::filter::Filter;

pub struct SelectingSink<'a> {
    since_ns: u64,
    until_ns: u64,
    filter: Option<&'a Filter>,
    sink: &'a mut dyn Sink,
}

impl<'a> SelectingSink<'a> {
    pub fn new(request: &'a Request, sink: &'a mut dyn Sink) -> Self {
        Self {
            since_ns: request.since.map_or(0, |when| when.0),
            until_ns: request.until.map_or(u64::MAX, |when| when.0),
            filter: request.filter.as_ref(),
            sink,
        }
    }
}

impl Sink for SelectingSink<'_> {
    fn on_event(&mut self, event: &Event<'_>) {
        let is_in_time = event.start_ns >= self.since_ns && event.start_ns < self.until_ns;
        if is_in_time && self.filter.is_none_or(|filter| filter.matches(event)) {
            self.sink.on_event(event);
        }
    }

    fn on_sample_share(&mut self, share: &SampleShare) {
        self.sink.on_sample_share(share);
    }
}
