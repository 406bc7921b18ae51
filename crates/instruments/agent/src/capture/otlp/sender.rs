//! Sender thread of one signal: takes requests off its queue, sends them, and tries again what the collector did not take.

use super::client::{OtlpClient, Outcome};
use super::queue::ExportQueue;
use crate::backoff::Backoff;
use std::time::Duration;

/// Between two attempts where the collector asks for no other pause: first, and at most.
const BACKOFF_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Until the queue is closed and empty, or closed and the collector takes nothing.
pub fn run_sender(queue: &ExportQueue, client: &OtlpClient, seed: u64) {
    let mut pauses = Backoff::new(BACKOFF_RANGE, seed);
    let mut trouble = Trouble::default();
    while let Some(request) = queue.take() {
        match client.post(&request.body) {
            Outcome::Accepted { refused, message } => {
                queue.finish_request(refused);
                pauses.reset();
                match (refused, message.as_str()) {
                    (0, "") => trouble.end(client.url()),
                    (0, message) => trouble.warn(format!("{} warns: {message}", client.url())),
                    (_, message) => trouble.warn(format!(
                        "{} took a part of the records alone, and refused the others: {message}",
                        client.url()
                    )),
                }
            }
            Outcome::Refused(why) => {
                queue.finish_request(request.records);
                pauses.reset();
                trouble.warn(format!("{} refuses records, which are dropped: {why}", client.url()));
            }
            Outcome::Retry { why, after } => {
                queue.put_back(request);
                trouble.warn(format!("{} takes no records now: {why}; trying again", client.url()));
                let pause = after.unwrap_or_else(|| pauses.next_pause());
                // At the end it is tried once more, unless it asked for a pause.
                if queue.is_closed() || (!queue.pause(pause) && after.is_some()) {
                    queue.give_up();
                    return;
                }
            }
        }
    }
}

/// What was last said to be wrong: a collector that is down for a day is one line, not one a minute.
#[derive(Default)]
struct Trouble(Option<String>);

impl Trouble {
    fn warn(&mut self, text: String) {
        if self.0.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.0 = Some(text);
        }
    }

    fn end(&mut self, url: &str) {
        if self.0.take().is_some() {
            tracing::info!("{url} takes records again");
        }
    }
}
