//! Which events are digested? Those within the time and the filter that were asked for.

use super::Request;
use toll_wire::event::{Event, Sink};

pub struct Select<'a> {
    since_ns: u64,
    until_ns: u64,
    sink: &'a mut dyn Sink,
}

impl<'a> Select<'a> {
    pub fn new(request: &'a Request, sink: &'a mut dyn Sink) -> Self {
        Self {
            since_ns: request.since.map_or(0, |when| when.0),
            until_ns: request.until.map_or(u64::MAX, |when| when.0),
            sink,
        }
    }
}

impl Sink for Select<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if event.start_ns >= self.since_ns && event.start_ns < self.until_ns {
            self.sink.event(event);
        }
    }
}
