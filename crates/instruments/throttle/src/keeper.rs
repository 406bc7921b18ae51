//! Control loop that enforces the latency limit during the dump.
//!
//! Ten times a second a thread reads the probe, the flag file and the control socket, runs the controller,
//! and sets the rate limiter. Decides only on the limits of time and history.

use super::account::{Account, CanaryAccount, HistoryAccount, Latency, Unthrottled};
use super::baseline::Answer;
use super::canary::Canary;
use super::control::Desk;
use super::decision::{Allow, Decision, Meanwhile, Why};
use super::gate::Gate;
use super::history::History;
use super::orders::{Wishes, pct};
use super::progress::Now;
use super::promise::Promise;
use super::sketch::Sketch;
use super::steering::{PROMISED, Steering};
use super::{Asked, PastLimit, now_s, seconds_of};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_sys::number_format;

const BEAT: Duration = Duration::from_millis(100);
/// The rate that is shown is the mean of so many beats.
const SHOWN_BEATS: usize = 30;
/// The undisturbed median has moved by more than what was promised, and than chance moves it.
const MOVED_LEAST: f64 = 0.1;
/// Share of failed probe queries above which the probe is unreliable.
const REFUSED_SHARE: f64 = 0.01;

/// Parameters fixed before the dump starts.
pub struct Given {
    pub asked: Asked,
    pub per_s: f64,
    pub question: String,
    pub history_at_begin: Option<u64>,
    pub before: Vec<Answer>,
}

/// State shared with other threads.
pub struct Shared {
    pub gate: Arc<Gate>,
    pub finished: Arc<AtomicBool>,
    pub desk: Arc<Desk>,
}

pub struct Keeper {
    given: Given,
    shared: Shared,
    canary: Canary,
    history: History,
    steering: Steering,
    promise: Promise,
    undisturbed: Sketch,
    with_dump: Sketch,
    begun_s: f64,
    questions: u64,
    refused: u64,
    last_refusal: Option<String>,
    history_most: Option<u64>,
    /// As they were at the last beat.
    wishes: Wishes,
    flagged: bool,
    freed: Option<String>,
    was_unkept: bool,
    was_blind: bool,
    last: Option<Decision>,
    recent: VecDeque<(f64, u64)>,
    log: Option<File>,
}

/// A log line, for each change of the permission.
#[derive(Debug, Serialize)]
struct Logged {
    at_s: f64,
    why: Why,
    /// None: as fast as it goes. 0: nothing.
    bytes_per_s: Option<f64>,
    moved_bytes: u64,
    toll_pct: Option<f64>,
    undisturbed_us_p99: Option<f64>,
}

impl Keeper {
    pub fn new(
        given: Given,
        shared: Shared,
        canary: Canary,
        history: History,
        steering: Steering,
    ) -> Result<Self> {
        let log = given.asked.log.as_ref().map(|path| {
            File::create(path).with_context(|| format!("cannot write {}: name another --log", path.display()))
        });
        let mut undisturbed = Sketch::new(f64::INFINITY);
        given.before.iter().for_each(|answer| undisturbed.add(answer.sent_s, answer.ln_us));
        let begun_s = now_s();
        Ok(Self {
            wishes: shared.desk.wishes(),
            history_most: given.history_at_begin,
            questions: given.before.len() as u64,
            log: log.transpose()?,
            promise: Promise::begin(begun_s),
            with_dump: Sketch::new(f64::INFINITY),
            undisturbed,
            begun_s,
            refused: 0,
            last_refusal: None,
            flagged: false,
            freed: None,
            was_unkept: false,
            was_blind: false,
            last: None,
            recent: VecDeque::new(),
            given,
            shared,
            canary,
            history,
            steering,
        })
    }

    /// Runs until the dump has ended.
    pub fn keep(mut self) -> Account {
        while !self.shared.finished.load(Ordering::Relaxed) {
            self.beat();
            std::thread::sleep(BEAT);
        }
        self.hear();
        self.given.asked.progress.finish();
        self.account()
    }

    fn beat(&mut self) {
        // Whoever waits at the gate looks at nothing else.
        if self.given.asked.cancel.is_cancelled() {
            self.shared.gate.end("interrupted");
        }
        self.hear();
        self.heed_orders();
        self.heed_limits();
        let (now_s, moved) = (now_s(), self.shared.gate.moved());
        let held = self.wishes.paused || self.flagged;
        let decision = self.steering.decide(now_s, moved, self.canary.waiting_us(), held);
        self.shared.gate.allow(decision.allow);
        if self.freed.is_none() {
            self.promise.look(now_s, self.steering.baseline(), self.wishes.max_toll);
        }
        if self.last != Some(decision) {
            self.tell_of_trouble(decision.why);
            self.write_down(decision, now_s, moved);
            self.last = Some(decision);
        }
        self.recent.push_back((now_s, moved));
        if self.recent.len() > SHOWN_BEATS {
            self.recent.pop_front();
        }
        let now = self.now(decision);
        self.shared.desk.tell(self.status(&now));
        self.given.asked.progress.show(&now);
    }

    fn hear(&mut self) {
        let heard: Vec<_> = self.canary.answers().collect();
        for asked in heard {
            self.questions += 1;
            if let Some(why) = asked.refused {
                self.refused += 1;
                self.last_refusal = Some(why);
                continue;
            }
            let (sent_s, latency_us) = (asked.sent_ns as f64 / 1e9, asked.latency_ns as f64 / 1e3);
            self.promise.answered(sent_s, latency_us);
            let ln_us = latency_us.max(1e-3).ln();
            match self.steering.answered(sent_s, latency_us) {
                Meanwhile::Dump => self.with_dump.add(sent_s, ln_us),
                Meanwhile::Pause => self.undisturbed.add(sent_s, ln_us),
                Meanwhile::Between => {}
            }
        }
    }

    fn heed_orders(&mut self) {
        let wishes = self.shared.desk.wishes();
        if wishes != self.wishes {
            self.steering.set_max_toll(wishes.max_toll);
            self.steering.set_ceiling(wishes.ceiling);
            self.given.asked.progress.say(&format!("on the control socket: {wishes}"));
            self.wishes = wishes;
        }
        if wishes.panic {
            self.shared.gate.end("panic was said on the control socket");
        }
        let flag_file = self.given.asked.flag_file.as_deref();
        let flagged = flag_file.is_some_and(std::path::Path::exists);
        if let Some(file) = flag_file.filter(|_| flagged != self.flagged) {
            let what = if flagged { "is there: paused" } else { "is gone" };
            self.given.asked.progress.say(&format!("{} {what}", file.display()));
        }
        self.flagged = flagged;
    }

    /// Frees or ends a dump that exceeded a limit of time or history, and reports it.
    fn heed_limits(&mut self) {
        let length = self.history.length();
        self.history_most = self.history_most.max(length);
        if self.freed.is_some() {
            return;
        }
        let elapsed_s = now_s() - self.begun_s;
        let asked = &self.given.asked;
        let late = asked.max_time.is_some_and(|most| elapsed_s > most.as_secs_f64());
        let long = asked.max_history.zip(length).is_some_and(|(most, length)| length > most);
        let what = match (late, long) {
            (true, _) => format!("the dump goes on for {}", number_format::format_duration_s(elapsed_s)),
            (_, true) => format!("the history list is {} long", length.unwrap_or(0)),
            _ => return,
        };
        match asked.past_limit {
            PastLimit::Open => {
                self.given
                    .asked
                    .progress
                    .say(&format!("{what}: the promise is given up, the dump goes as fast as it can"));
                self.steering.free();
            }
            PastLimit::End => self.shared.gate.end(&format!("{what}: the dump is ended (--past-limit end)")),
        }
        self.freed = Some(what);
    }

    fn tell_of_trouble(&mut self, why: Why) {
        if why == Why::Unkept && !self.was_unkept {
            self.was_unkept = true;
            let goes_on = match self.given.asked.min_rate {
                Some(_) => "the dump goes on at --min-rate",
                None => "the dump goes on at that rate, with pauses as long as the server bears",
            };
            self.given.asked.progress.say(&format!(
                "the promise cannot be kept even at the slowest rate: the host itself has become slow, or the \
                 promise is smaller than what chance moves the p99 by; {goes_on}"
            ));
        }
        if why == Why::Blind && !self.was_blind {
            self.was_blind = true;
            let reason = self.last_refusal.as_deref().unwrap_or("no answer in time");
            self.given
                .asked
                .progress
                .say(&format!("the canary is not answered ({reason}): the slowest rate until it is"));
        }
    }

    /// A log that cannot be written any more (a full disk) is no reason to end a dump.
    fn write_down(&mut self, decision: Decision, now_s: f64, moved: u64) {
        let toll = self.steering.toll_of_late();
        let undisturbed = self.steering.baseline().estimate(PROMISED);
        let Some(log) = &mut self.log else { return };
        let line = Logged {
            at_s: now_s - self.begun_s,
            why: decision.why,
            bytes_per_s: match decision.allow {
                Allow::Open => None,
                Allow::Rate(rate) => Some(rate),
                Allow::Still => Some(0.0),
            },
            moved_bytes: moved,
            toll_pct: toll.map(|toll| 100.0 * toll.ln.exp_m1()),
            undisturbed_us_p99: undisturbed.map(|p99| p99.ln.exp()),
        };
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            let _ = log.write_all(&text);
        }
    }

    fn now(&self, decision: Decision) -> Now {
        let (first, last) = (self.recent.front(), self.recent.back());
        let bytes_per_s = match (first, last) {
            (Some(first), Some(last)) if last.0 > first.0 => (last.1 - first.1) as f64 / (last.0 - first.0),
            _ => 0.0,
        };
        let why = serde_json::to_value(decision.why).ok();
        let why = why.as_ref().and_then(|why| why.as_str()).unwrap_or_default().to_owned();
        let base = self.steering.baseline().estimate(PROMISED);
        let p99_us = self.steering.toll_of_late().zip(base).map(|(toll, base)| {
            let base = base.ln.exp();
            (base * toll.ln.exp(), base)
        });
        let windows = self.promise.windows();
        Now {
            bytes: self.shared.gate.moved(),
            bytes_per_s,
            allowed: match decision.allow {
                Allow::Rate(rate) => format!("{why}, {} MB/s allowed", number_format::format_megabytes(rate)),
                Allow::Open | Allow::Still => why,
            },
            p99_us,
            max_toll_pct: pct(self.wishes.max_toll),
            kept: windows.kept,
            judged: windows.judged,
        }
    }

    fn status(&self, now: &Now) -> String {
        let mut status = format!("{}\n{}", now.line(), self.wishes);
        if let (true, Some(file)) = (self.flagged, &self.given.asked.flag_file) {
            status += &format!("\npaused while {} exists", file.display());
        }
        if let Some(length) = self.history.length() {
            status += &format!("\nhistory list: {length}");
        }
        status
    }

    fn account(&self) -> Account {
        let times = self.shared.gate.times();
        let [paused_s, slowed_s, waited_for_dump_s, waited_for_taker_s] = seconds_of(&times);
        let (bytes, elapsed_s) = (self.shared.gate.moved(), now_s() - self.begun_s);
        let moved = self.steering.baseline().moved_since_begin();
        Account {
            max_p99_toll_pct: pct(self.wishes.max_toll),
            elapsed_s,
            bytes,
            bytes_per_s: bytes as f64 / elapsed_s.max(1e-3),
            paused_s,
            slowed_s,
            waited_for_dump_s,
            waited_for_taker_s,
            unthrottled: Unthrottled::of(&times, bytes),
            canary: CanaryAccount {
                question: self.given.question.clone(),
                questions_per_s: self.given.per_s,
                questions: self.questions,
                refused: self.refused,
                undisturbed: Latency::of(&self.undisturbed),
                with_dump: Latency::of(&self.with_dump),
                undisturbed_moved_pct: moved.map(|moved| 100.0 * moved.exp_m1()),
                undisturbed_wobble_pct: 100.0 * self.steering.baseline().wobble().exp_m1(),
            },
            windows: self.promise.windows(),
            history: HistoryAccount { at_begin: self.given.history_at_begin, most: self.history_most },
            doubts: self.doubts(moved),
        }
    }

    fn doubts(&self, moved: Option<f64>) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(what) = &self.freed {
            doubts.push(format!("the promise held only until {what}"));
        }
        if self.was_unkept {
            doubts.push("there were times in which even the slowest rate did not keep the promise".into());
        }
        if self.was_blind {
            doubts.push(
                "there were times in which the canary was not answered: nothing is known of those".into(),
            );
        }
        if self.refused as f64 > REFUSED_SHARE * self.questions as f64 {
            let why = self.last_refusal.as_deref().unwrap_or_default();
            doubts.push(format!("the canary was refused {} times, last with: {why}", self.refused));
        }
        let wobble = self.steering.baseline().wobble();
        if wobble > self.wishes.max_toll.ln_1p() / 2.0 {
            doubts.push(format!(
                "without a dump the canary differs by {:.0}% from one second to the next: windows miss the promise by \
                 that alone, more of them than chance is said to explain",
                100.0 * wobble.exp_m1()
            ));
        }
        let most = self.wishes.max_toll.ln_1p().max(MOVED_LEAST);
        if let Some(moved) = moved.filter(|moved| moved.abs() > most) {
            doubts.push(format!(
                "the undisturbed median has moved by {} since before the dump: by the users' day, or by what the \
                 dump left behind (the buffer pool), which pauses cannot tell apart",
                number_format::format_signed_percent(100.0 * moved.exp_m1())
            ));
        }
        doubts
    }
}
