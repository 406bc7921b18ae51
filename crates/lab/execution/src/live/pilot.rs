//! A look at a server and its users before anything is switched: what is usual, what is seen, how much it varies.

use crate::class_meter::{ClassMeter, ClassSource, PilotSample, SeenStretch, SeenTraffic, command, noise_of};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use toll_guard::limits::{Baseline, BaselineCollector};
use toll_guard::watch::{LOOK_US, Watch, WatchedFiles};
use toll_model::scenario::Judged;
use toll_mysql::Target;
use toll_probe::ProbeQuery;
use toll_record::{Noise, QueryClass};
use toll_stats::random::Rng;
use toll_sys::cancel::CancelToken;
use toll_sys::clock;
use toll_wire::fingerprint::fingerprint;

/// What is seen of a server's users, and what is not.
#[derive(Debug, Clone, Default)]
pub struct UsersView {
    /// `None`: their response times are not seen.
    pub source: Option<ClassSource>,
    /// Why better sources cannot be used.
    pub not_seen: Vec<String>,
    pub traffic: SeenTraffic,
    /// Of the probe queries' latency.
    pub probe_noise: Option<Noise>,
    /// The same latency over the pilot.
    pub probe_series: Vec<PilotSample>,
}

impl UsersView {
    /// Classes of queries that the run compares; empty: it cannot.
    #[must_use]
    pub fn classes(&self) -> &[QueryClass] {
        &self.traffic.classes
    }

    /// The outcome that verdicts are drawn from: the best that is seen.
    #[must_use]
    pub fn judged(&self, sees_host: bool) -> Judged {
        match (self.classes().is_empty(), sees_host) {
            (false, _) => Judged::UsersResponse,
            (true, true) => Judged::HostCpu,
            (true, false) => Judged::ProbeResponse,
        }
    }

    /// What is seen where treatments cross over to a second server: of both, by the same source. Noise is that of half the
    /// difference between the servers.
    #[must_use]
    pub fn crossed_with(mut self, second: &Self) -> Self {
        self.not_seen.extend(second.not_seen.iter().map(|what| format!("at the second server: {what}")));
        if self.source.as_ref().map(ClassSource::describe)
            != second.source.as_ref().map(ClassSource::describe)
        {
            self.source = None;
            self.not_seen.push("users' response times by the same source at both servers".to_owned());
        }
        if self.source.is_none() {
            self.traffic = SeenTraffic::default();
        }
        let width_us = self.traffic.width_us.max(second.traffic.width_us);
        self.traffic.noise =
            noise_of(&half_difference(&self.traffic.series, &second.traffic.series, width_us), width_us);
        self.probe_noise =
            noise_of(&half_difference(&self.probe_series, &second.probe_series, HALF_S_US), HALF_S_US);
        self
    }

    /// Noise of the outcome that is judged, as far as the pilot says.
    #[must_use]
    pub fn noise_of(&self, judged: Judged) -> Option<&Noise> {
        match judged {
            Judged::UsersResponse => self.traffic.noise.as_ref(),
            Judged::ProbeResponse => self.probe_noise.as_ref(),
            Judged::HostCpu => None,
        }
    }
}

/// How a server is looked at before anything is switched.
#[derive(Debug)]
pub struct PilotRequest<'a> {
    pub target: &'a Target,
    pub probe_query: Option<&'a str>,
    pub files: &'a WatchedFiles,
    pub seconds: f64,
    /// The server's process, where it is on this host.
    pub server_pid: Option<i32>,
    /// The user wants no tap.
    pub without_tap: bool,
}

/// Looks at a server, its users and its host for so long, with nothing switched. `None`: interrupted, or too few probe queries
/// were answered.
///
/// # Errors
/// The server cannot be watched.
pub fn run_pilot(
    request: &PilotRequest<'_>,
    cancel: &CancelToken,
) -> anyhow::Result<Option<(Baseline, UsersView)>> {
    let query = ProbeQuery::choose(request.target, request.probe_query)?;
    let own = fingerprints(&query);
    let mut watch = Watch::start(request.target, query, &[], request.files.clone(), 1)?;
    let (meter, mut users, stretches) = start_meter(request, &own);
    let mut collector = BaselineCollector::default();
    let mut probes = Vec::new();
    let begun = Instant::now();
    let mut next_us = clock::mono_us();
    let mut is_whole = true;
    while is_whole && begun.elapsed().as_secs_f64() < request.seconds {
        next_us += LOOK_US;
        is_whole = cancel.sleep_until(next_us);
        let reading = watch.look();
        probes.extend(reading.probes_us.iter().map(|us| (reading.at_us, us.max(1e-3).ln())));
        collector.add(&reading);
    }
    if let Some(meter) = meter {
        meter.stop(None)?;
    }
    let Some(baseline) = collector.finish().filter(|_| is_whole) else { return Ok(None) };
    let seen: Vec<SeenStretch> = stretches.try_iter().collect();
    users.traffic = SeenTraffic::of(&seen);
    if users.source.is_some() && users.classes().is_empty() {
        users.source = None;
        let per_s = users.traffic.queries_per_s;
        users.not_seen.push(format!("users sent {per_s:.1} queries a second: too few to compare by class"));
    }
    users.probe_series = by_half_seconds(&probes);
    users.probe_noise = noise_of(&users.probe_series, HALF_S_US);
    Ok(Some((baseline, users)))
}

const HALF_S_US: u64 = 500_000;

/// Means over half seconds.
fn by_half_seconds(probes: &[(u64, f64)]) -> Vec<PilotSample> {
    let spans = probes.chunk_by(|a, b| a.0 / HALF_S_US == b.0 / HALF_S_US);
    spans
        .map(|span| {
            let ln: Vec<f64> = span.iter().map(|(_, ln)| *ln).collect();
            PilotSample { at_us: span[0].0 / HALF_S_US * HALF_S_US, ln: toll_stats::mean(&ln) }
        })
        .collect()
}

/// Of two series, where both have a value within the same stretch of this length.
fn half_difference(first: &[PilotSample], second: &[PilotSample], width_us: u64) -> Vec<PilotSample> {
    let stretch = |sample: &PilotSample| sample.at_us / width_us.max(1);
    let second: BTreeMap<u64, f64> = second.iter().map(|sample| (stretch(sample), sample.ln)).collect();
    let of_both = |sample: &PilotSample| {
        let ln = (sample.ln - second.get(&stretch(sample))?) / 2.0;
        Some(PilotSample { ln, ..*sample })
    };
    first.iter().filter_map(of_both).collect()
}

/// The best source that works here; what it sees comes through the channel.
fn start_meter(
    request: &PilotRequest<'_>,
    own: &[String],
) -> (Option<ClassMeter>, UsersView, Receiver<SeenStretch>) {
    let mut users = UsersView::default();
    let (tell, stretches) = channel();
    let mut sources = Vec::new();
    match request.server_pid {
        Some(pid) if !request.without_tap => sources.push(ClassSource::Tap(command(pid))),
        Some(_) => users.not_seen.push("queries on the server's sockets: --no-tap".to_owned()),
        None => users.not_seen.push("the server's host: its CPU, disks, memory and sockets".to_owned()),
    }
    sources.push(ClassSource::Counters(Box::new(request.target.clone())));
    for source in sources {
        let tell = tell.clone();
        let taker = move |stretch| {
            // Nobody listens once the pilot is over.
            let _ = tell.send(stretch);
        };
        match ClassMeter::start(&source, None, own.to_vec(), taker) {
            Ok(meter) => {
                if let ClassSource::Counters(_) = source {
                    users.not_seen.push("queries of other programs under toll's own account".to_owned());
                }
                users.source = Some(source);
                return (Some(meter), users, stretches);
            }
            Err(error) => users.not_seen.push(format!("{}: {error:#}", source.describe())),
        }
    }
    (None, users, stretches)
}

/// Of toll's probe queries.
pub(super) fn fingerprints(query: &ProbeQuery) -> Vec<String> {
    /// A query names one table of few: these name each.
    const DRAWS: u64 = 64;
    let mut draws = Rng::new(1, 0);
    let mut found: Vec<String> = (0..DRAWS)
        .map(|_| {
            let mut text = Vec::new();
            fingerprint(query.next_sql(&mut draws).as_bytes(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}
