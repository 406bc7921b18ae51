//! Tests of statements, schedule and counts of a load run.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toll_load::engine::{self, Bin, BinGrid, LoadPlan, RunError, Totals};
use toll_load::mix::{Distribution, Event, Mix, Profile, Statement, Step, TableSet};
use toll_load::tables::{self, TableLayout};
use toll_mysql::{Compression, Connection, Target, Tls};
use toll_stats::schedule::{ArrivalProcess, Pacing, Schedule};
use toll_testkit::server::TestServer;

pub const TABLE: TableSet = TableSet { tables: 2, rows: 1000, distribution: Distribution::Special };

pub fn plan(target: Target, mix: Mix) -> LoadPlan {
    LoadPlan {
        target: Target { db: Some("sbtest".into()), ..target },
        mix,
        pace: Pacing::Closed,
        connections: 4,
        workers: 2,
        prepared: true,
        reconnect_every: 0,
        delay: 0.0,
        rest_at_edges: false,
        time: None,
        warmup: Duration::ZERO,
        bins: BinGrid::Clock(Duration::from_millis(50)),
        seed: 1,
        give_up: Duration::from_secs(30),
    }
}

pub fn server_with_tables() -> Option<TestServer> {
    let server = TestServer::mariadb(&["--max-allowed-packet=64M"])?;
    create_tables(&server);
    Some(server)
}

pub fn create_tables(server: &TestServer) {
    let layout = TableLayout { table: TABLE, seed: 1, threads: 2 };
    let target = Target { db: Some("sbtest".into()), ..server.unix_target() };
    tables::prepare_tables(&target, &layout, &AtomicBool::new(false), |_| {}).unwrap();
}

pub struct Outcome {
    pub totals: Totals,
    /// Statements, events and errors of all bins.
    pub sums: (u64, u64, u64),
    pub bins: Vec<Bin>,
}

/// Runs to the end of the plan, or until `see` finds that it has seen enough (`true`).
pub fn run_with_callback(plan: LoadPlan, mut see: impl FnMut(&Bin) -> bool) -> Result<Outcome, RunError> {
    let mut sums = (0, 0, 0);
    let totals = engine::run_load(plan, Arc::new(AtomicBool::new(false)), |bin| {
        sums.0 += bin.tally.counts.statements;
        sums.1 += bin.tally.counts.events;
        sums.2 += bin.tally.counts.errors;
        if see(bin) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(Outcome { totals, sums, bins: Vec::new() })
}

/// A plan without an end runs until it has some events to judge by, however slow this host is.
pub fn run(plan: LoadPlan) -> Result<Outcome, RunError> {
    let endless = plan.time.is_none();
    let mut bins: Vec<Bin> = Vec::new();
    let outcome = run_with_callback(plan, |bin| {
        bins.push(Bin { tally: bin.tally.clone(), ..*bin });
        let events = bins.iter().filter(|b| !b.warmup).map(|b| b.tally.counts.events).sum::<u64>();
        endless && bins.len() >= 8 && events >= 40
    })?;
    Ok(Outcome { bins, ..outcome })
}

/// `Questions` of the server, read on a session that stays.
fn questions(root: &mut Connection) -> u64 {
    let rows = root.query("SHOW GLOBAL STATUS LIKE 'Questions'").unwrap();
    rows.rows[0][1].as_deref().unwrap().parse().unwrap()
}

/// Waits until only `root` is left; answers how many questions that took.
fn wait_until_alone(root: &mut Connection) -> u64 {
    for asked in 1.. {
        if root.query("SHOW GLOBAL STATUS LIKE 'Threads_connected'").unwrap().rows[0][1].as_deref()
            == Some("1")
        {
            return asked;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    0
}

#[test]
fn system_a_delay_makes_every_event_longer_by_its_share_under_threads_and_in_one_loop() {
    let Some(server) = server_with_tables() else { return };
    let open = Pacing::Open { rate_per_s: 40.0, arrivals: ArrivalProcess::Uniform };
    for (pace, workers) in [(Pacing::Closed, 4), (Pacing::Closed, 1), (open.clone(), 4), (open, 1)] {
        let fastest = |delay: f64| {
            let mix = one_statement("DO SLEEP(0.02)");
            let plan = LoadPlan { pace: pace.clone(), workers, delay, ..plan(server.unix_target(), mix) };
            run(plan).unwrap().totals.latency.min() as f64 / 1e6
        };
        let (plain, delayed) = (fastest(0.0), fastest(0.5));
        // The server answers none sooner than that; a histogram keeps three digits.
        assert!(plain >= 19.9 && delayed >= 29.9, "{pace:?}, {workers}: {plain} and {delayed} ms");
        // Of so many events one at least is answered in time.
        assert!(plain < 29.0, "{pace:?}, {workers}: {plain} ms");
    }
}

#[test]
fn every_statement_of_every_profile_is_one_that_the_server_counted() {
    let Some(server) = server_with_tables() else { return };
    let mut root = server.connect_as_root();
    for profile in Profile::ALL {
        for (prepared, connections, target) in [
            (true, 4, server.unix_target()),
            (false, 4, server.tcp_target()),
            (true, 1, server.tcp_target()),
            (false, 1, server.unix_target()),
        ] {
            wait_until_alone(&mut root);
            let before = questions(&mut root);
            let plan = LoadPlan { prepared, connections, ..plan(target, profile.build_mix(TABLE).unwrap()) };
            let outcome = run(plan).unwrap();
            // Counted as well: our own questions, this one included, and each connection's goodbye.
            let own = wait_until_alone(&mut root) + 1 + connections as u64;
            let counted = questions(&mut root) - before - own;
            let totals = &outcome.totals.counts;
            assert_eq!(outcome.sums.0, counted, "{profile:?}, prepared {prepared}");
            assert_eq!(outcome.sums, (totals.statements, totals.events, totals.errors), "{profile:?}");
            assert_eq!(outcome.totals.latency.len(), totals.events);
            assert!(totals.events > 0, "{profile:?} {:?}", outcome.totals.messages);
            // Writers of the same rows may wait for each other to death; nothing else may go wrong.
            let other: Vec<_> =
                totals.errors_by_code.keys().filter(|c| ![1205, 1213, 1062].contains(*c)).collect();
            assert!(other.is_empty(), "{profile:?} {:?}", outcome.totals.messages);
        }
    }
}

#[test]
fn statements_by_kind_are_those_that_sysbench_sends() {
    let Some(server) = server_with_tables() else { return };
    let counts = |names: [&str; 5]| {
        let rows = server.connect_as_root().query("SHOW GLOBAL STATUS LIKE 'Com\\_%'").unwrap();
        let value = |name: &str| rows.pairs().find(|(n, _)| *n == name).unwrap().1.parse::<u64>().unwrap();
        names.map(value)
    };
    let names = ["Com_select", "Com_update", "Com_delete", "Com_insert", "Com_commit"];
    let before = counts(names);
    let outcome = run(LoadPlan {
        connections: 1,
        ..plan(server.unix_target(), Profile::ReadWrite.build_mix(TABLE).unwrap())
    })
    .unwrap();
    let after = counts(names);
    let events = outcome.totals.counts.events;
    let per_event = std::array::from_fn(|i| (after[i] - before[i]) as f64 / events as f64);
    assert_eq!(per_event, [14.0, 2.0, 1.0, 1.0, 1.0]);
}

#[test]
fn a_load_travels_over_tls_and_compression_as_well() {
    let Some(server) = server_with_tables() else { return };
    let certificates = tempfile::tempdir().unwrap();
    let mut transports = vec![Target { compress: Compression::Zlib, ..server.tcp_target() }];
    let secure = toll_testkit::server::make_certificates(certificates.path()).then(|| {
        let path = |name: &str| certificates.path().join(name).display().to_string();
        let options =
            [format!("--ssl-cert={}", path("server.pem")), format!("--ssl-key={}", path("server.key"))];
        TestServer::mariadb(&[&options[0], &options[1]])
    });
    if let Some(Some(secure)) = &secure {
        create_tables(secure);
        let tls = Target { tls: Tls::Required, ..secure.tcp_target() };
        transports.extend([tls.clone(), Target { compress: Compression::Zlib, ..tls }]);
    } else {
        toll_testkit::skip!("load over TLS: openssl is missing");
    }
    for target in transports {
        for connections in [1, 6] {
            let plan =
                LoadPlan { connections, ..plan(target.clone(), Profile::ReadOnly.build_mix(TABLE).unwrap()) };
            let totals = run(plan).unwrap().totals;
            assert!(
                totals.counts.events > 0 && totals.counts.errors == 0,
                "{target:?} {:?}",
                totals.messages
            );
            assert_eq!(totals.counts.statements / 16, totals.counts.events);
        }
    }
}

fn one_statement(sql: &str) -> Mix {
    let event = Event { name: "one".into(), weight: 1.0, steps: vec![Step::Fixed(0)], transaction: false };
    Mix::new(vec![Statement::literal(sql)], vec![event], 1).unwrap()
}

#[test]
fn results_and_requests_beyond_sixteen_megabytes_pass_by_in_bounded_memory() {
    let Some(server) = server_with_tables() else { return };
    let long_request = format!("SELECT LENGTH('{}')", "x".repeat(17 << 20));
    for sql in ["SELECT REPEAT('x', 20000000), 1", "SELECT REPEAT('x', 16777215 - 4)", &long_request] {
        for connections in [1, 3] {
            let outcome = run(LoadPlan {
                connections,
                prepared: false,
                ..plan(server.tcp_target(), one_statement(sql))
            })
            .unwrap();
            let counts = &outcome.totals.counts;
            assert!(counts.events > 0 && counts.errors == 0, "{:?}", outcome.totals.messages);
        }
    }
}

#[test]
fn system_an_open_loop_begins_every_event_that_is_due_and_none_before() {
    let Some(server) = server_with_tables() else { return };
    let time = Duration::from_secs(2);
    for (rate_per_s, arrivals) in [
        (10.0, ArrivalProcess::Uniform),
        (10.0, ArrivalProcess::Poisson),
        (1000.0, ArrivalProcess::Uniform),
        (1000.0, ArrivalProcess::Poisson),
    ] {
        let pace = Pacing::Open { rate_per_s, arrivals };
        for connections in [1, 8] {
            let plan = LoadPlan {
                pace: pace.clone(),
                time: Some(time),
                connections,
                ..plan(server.unix_target(), Profile::PointSelect.build_mix(TABLE).unwrap())
            };
            let (seed, outcome) = (plan.seed, run(plan).unwrap());
            let totals = &outcome.totals;
            let end_ns = totals.begin_ns + time.as_nanos() as u64;
            let mut schedule = Schedule::new(&pace, seed, totals.begin_ns, end_ns).unwrap();
            let intended: Vec<u64> =
                std::iter::from_fn(|| schedule.pop()).map(|due| due.intended_ns).collect();
            let n = intended.len() as f64;
            match arrivals {
                ArrivalProcess::Uniform => assert_eq!(n, rate_per_s * 2.0),
                // Four standard deviations of a Poisson count.
                ArrivalProcess::Poisson => {
                    assert!((n - rate_per_s * 2.0).abs() < 4.0 * (rate_per_s * 2.0).sqrt(), "{n}");
                }
            }
            assert_eq!(totals.due, Some(intended.len() as u64));
            assert_eq!(totals.due, Some(totals.counts.events + totals.counts.in_flight));
            let mut done = 0;
            for bin in &outcome.bins {
                let counts = &bin.tally.counts;
                done += counts.events + counts.errors;
                let due = intended.partition_point(|intended_ns| *intended_ns <= bin.end_ns) as u64;
                assert_eq!(done + counts.in_flight, due, "{pace:?}, {connections} connections");
            }
        }
    }
}

#[test]
fn a_recording_is_over_only_once_each_of_its_events_has_begun() {
    let Some(server) = server_with_tables() else { return };
    // All due at once: every one but the first few begins late.
    let offsets_ns = vec![0; 500];
    for (connections, workers) in [(1, 1), (3, 1), (2, 2)] {
        let pace = Pacing::Recorded { offsets_ns: offsets_ns.clone() };
        let mix = Profile::PointSelect.build_mix(TABLE).unwrap();
        let plan = LoadPlan { pace, connections, workers, ..plan(server.unix_target(), mix) };
        let totals = run_with_callback(plan, |_| false).unwrap().totals;
        assert_eq!((totals.counts.events, totals.counts.errors), (500, 0), "{connections}: {totals:?}");
        assert_eq!((totals.due, totals.backlog), (Some(500), 0));
    }
}

#[test]
fn system_a_server_stopped_for_half_a_second_is_a_stall_and_shows_in_the_tail() {
    let Some(server) = server_with_tables() else { return };
    let pace = Pacing::Open { rate_per_s: 200.0, arrivals: ArrivalProcess::Uniform };
    let plan =
        LoadPlan { pace, ..plan(server.unix_target(), Profile::PointSelect.build_mix(TABLE).unwrap()) };
    let (mut bins, mut stopped_for, mut after) = (0, None, 0);
    let mut stalled = Vec::new();
    let outcome = run_with_callback(plan, |bin| {
        bins += 1;
        after += if stopped_for.is_some() { bin.tally.counts.events } else { 0 };
        if bins == 20 {
            server.signal("STOP");
            let begin = std::time::Instant::now();
            std::thread::sleep(Duration::from_millis(500));
            server.signal("CONT");
            stopped_for = Some(begin.elapsed());
        }
        if bin.tally.counts.events == 0 && bin.tally.counts.in_flight > 0 {
            stalled.push(bin.tally.counts.oldest_ns);
        }
        // Once all that was due meanwhile is answered, and some of what came after.
        after >= 400 && bin.backlog == 0
    });
    let totals = outcome.unwrap().totals;
    let stopped_ns = stopped_for.unwrap().as_nanos() as u64;
    // One was due every 5 ms, and is late by what was left of the stop; a busy host adds others.
    let late = totals.latency.count_between(stopped_ns / 10, u64::MAX);
    let due = stopped_ns * 9 / 10 / 5_000_000;
    assert!(late >= due * 9 / 10, "{late} of {} events were late, {due} at least", totals.counts.events);
    assert!(totals.counts.latency_ns_max > stopped_ns * 8 / 10, "max {}", totals.counts.latency_ns_max);
    assert!(totals.latency.value_at_quantile(0.99) > stopped_ns / 2);
    // A busy host makes short stalls of its own before and after.
    let through = stalled.chunk_by(|before, after| after > before).max_by_key(|ages| ages.len());
    assert!(through.is_some_and(|ages| ages.len() >= 5), "ages rise through a stall: {stalled:?}");
}

#[test]
fn system_bins_end_on_time_while_the_server_says_nothing() {
    let Some(server) = server_with_tables() else { return };
    for connections in [1, 2, 4] {
        let plan = LoadPlan {
            connections,
            ..plan(server.unix_target(), Profile::PointSelect.build_mix(TABLE).unwrap())
        };
        let (mut bins, mut silent, mut after) = (0, Vec::new(), 0);
        let outcome = run_with_callback(plan, |bin| {
            bins += 1;
            if bins == 4 {
                server.signal("STOP");
            }
            let counts = &bin.tally.counts;
            if silent.len() < 5 {
                if bins > 4 && counts.events == 0 && counts.in_flight == connections as u64 {
                    silent.push(counts.oldest_ns);
                } else {
                    silent.clear();
                }
                if silent.len() == 5 {
                    // It goes on only because these bins were seen while it stood still.
                    server.signal("CONT");
                }
            } else {
                after += counts.events;
            }
            after >= 10
        });
        let outcome = outcome.unwrap();
        assert!(silent.windows(2).all(|w| w[1] == w[0] + 50_000_000), "{silent:?}");
        let totals = &outcome.totals.counts;
        assert_eq!(outcome.sums, (totals.statements, totals.events, totals.errors));
        assert_eq!(totals.errors, 0, "{:?}", outcome.totals.messages);
    }
}

#[test]
fn system_a_rate_beyond_capacity_is_said_to_be_one() {
    let Some(server) = server_with_tables() else { return };
    let pace = Pacing::Open { rate_per_s: 1000.0, arrivals: ArrivalProcess::Poisson };
    let time = Some(Duration::from_secs(5));
    let plan = LoadPlan {
        pace,
        time,
        connections: 2,
        ..plan(server.unix_target(), one_statement("DO SLEEP(0.01)"))
    };
    let totals = run(plan).unwrap().totals;
    assert!(totals.overloaded);
    assert!(totals.backlog > 3000, "{}", totals.backlog);
    assert!(totals.latency.value_at_quantile(0.5) > 1_000_000_000);
}

#[test]
fn bins_end_where_the_clock_says_and_the_warm_up_is_not_counted() {
    let Some(server) = server_with_tables() else { return };
    let base = plan(server.unix_target(), Profile::PointSelect.build_mix(TABLE).unwrap());
    let outcome = run(base.clone()).unwrap();
    let (last, whole) = outcome.bins.split_last().unwrap();
    assert!(whole.iter().all(|bin| bin.end_ns % 50_000_000 == 0));
    assert!(outcome.bins.windows(2).all(|w| w[0].end_ns == w[1].begin_ns));
    assert_eq!(last.end_ns, outcome.totals.end_ns);
    let warmup = Duration::from_millis(200);
    let outcome =
        run(LoadPlan { warmup, bins: BinGrid::FromStart(Duration::from_millis(40)), ..base }).unwrap();
    let counted: u64 = outcome.bins.iter().filter(|b| !b.warmup).map(|b| b.tally.counts.statements).sum();
    assert_eq!(counted, outcome.totals.counts.statements);
    assert!(counted < outcome.sums.0);
    assert_eq!(outcome.bins.iter().filter(|b| b.warmup).count(), 5);
}

#[test]
fn system_a_load_that_rests_at_edges_has_nothing_under_way_there() {
    let Some(server) = server_with_tables() else { return };
    // Two statements that sleep: neither this host nor its neighbours decide how long an event takes.
    let nap = Statement::literal("DO SLEEP(0.025)");
    let event =
        Event { name: "naps".into(), weight: 1.0, steps: vec![Step::Fixed(0); 2], transaction: false };
    let plan = LoadPlan {
        workers: 4,
        rest_at_edges: true,
        bins: BinGrid::Clock(Duration::from_secs(1)),
        time: Some(Duration::from_secs(7)),
        ..plan(server.unix_target(), Mix::new(vec![nap], vec![event], 1).unwrap())
    };
    let mut bins = Vec::new();
    run_with_callback(plan, |bin| {
        let counts = &bin.tally.counts;
        bins.push((counts.in_flight, counts.events, counts.statements));
        false
    })
    .unwrap();
    // In the first two it learns how long events take; what the second began may end in the third.
    let whole = &bins[3..bins.len() - 1];
    assert!(whole.len() >= 3 && whole.iter().all(|(in_flight, ..)| *in_flight == 0), "{bins:?}");
    // As many events in each, all of them whole.
    assert!(whole.iter().all(|bin| *bin == whole[0] && bin.1 > 0 && bin.2 == 2 * bin.1), "{bins:?}");
}
