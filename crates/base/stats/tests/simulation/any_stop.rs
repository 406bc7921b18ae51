//! The sequence of `toll live`: looked at after every block, on hosts that serve users.

use crate::share_pct;
use crate::simulated_host::SimulatedHost;
use toll_stats::{
    ClassWindow, blocks_for_sequence, median, sign_sequence, sign_sequence_p, stratified_change,
};

const RUNS: u64 = 1_000;
const LAST_LOOK: usize = 60;

/// Whether an interval leaves the truth out, at any look. (It never does without this p value: its ends are the outermost
/// effects that are not contradicted.)
fn ever_misses(d: &[f64], scale: f64, truth: f64) -> bool {
    let about: Vec<f64> = d.iter().map(|d| d - truth).collect();
    (blocks_for_sequence(0.05)..=d.len()).any(|n| sign_sequence_p(&about[..n], scale) <= 0.05)
}

/// One difference of a block.
type Draw = fn(&mut SimulatedHost) -> f64;

#[test]
fn all_looks_together_miss_as_seldom_as_promised_whatever_the_noise() {
    let kinds: [(&str, f64, Draw); 4] = [
        ("normal", 1.0, |host| host.normal()),
        ("one in ten ten times as wild", 1.0, |host| {
            let wild = host.draws.below(10) == 0;
            host.normal() * if wild { 10.0 } else { 1.0 }
        }),
        // Windows with long right tails, in drawn order.
        ("differences of lognormals", 1.0, |host| host.normal().exp() - host.normal().exp()),
        ("normal, scale wrong by a factor of five", 5.0, |host| host.normal()),
    ];
    for (kind, scale, draw) in kinds {
        let share =
            share_pct(&format!("sign sequence at every look to {LAST_LOOK}: {kind}"), 0..RUNS, |seed| {
                let mut host = SimulatedHost::new(seed);
                let d: Vec<f64> = (0..LAST_LOOK).map(|_| draw(&mut host)).collect();
                ever_misses(&d, scale, 0.0)
            });
        assert!(share <= 5.0, "{kind}: {share}");
    }
    // An effect that is not the same in every block is no constant one: the promise is not kept, and the documents say so.
    let skewed = share_pct("sign sequence at every look to 60: exponential", 0..RUNS, |seed| {
        ever_misses(&SimulatedHost::new(seed).skewed(LAST_LOOK), 1.0, 0.0)
    });
    assert!((5.0..=12.0).contains(&skewed), "{skewed}");
}

#[test]
fn it_is_as_narrow_as_its_page_says() {
    for (blocks, expected) in [(8, 2.50), (12, 2.02), (20, 1.47), (40, 1.07)] {
        let widths: Vec<f64> = (0..100)
            .map(|seed| {
                let d = SimulatedHost::new(seed).normals(blocks, 0.0, 1.0);
                let interval = sign_sequence(&d, 1.0, 0.05).unwrap();
                interval.high - interval.low
            })
            .collect();
        let width = median(&widths);
        println!("sign sequence of {blocks} blocks: {width:.2} sd wide");
        assert!((width / expected - 1.0).abs() < 0.1, "{blocks}: {width}");
    }
    let found = |effect: f64| {
        let blocks: Vec<f64> = (0..200)
            .map(|seed| {
                let d = SimulatedHost::new(seed).normals(LAST_LOOK, effect, 1.0);
                let tells = |n: &usize| sign_sequence_p(&d[..*n], 1.0) <= 0.05;
                (6..=LAST_LOOK).find(tells).unwrap_or(LAST_LOOK) as f64
            })
            .collect();
        median(&blocks)
    };
    let found = [1.0, 2.0, 3.0].map(found);
    println!("sign sequence tells effects of 1, 2 and 3 sd after {found:?} blocks (medians)");
    assert!(found[0] <= 14.0 && found[1] <= 8.0 && found[2] <= 7.0, "{found:?}");
}

/// Traffic and times of a simulated run.
#[derive(Clone, Copy)]
struct Live {
    queries_per_s: f64,
    /// Seconds of a window, and of the guard before it.
    window_s: usize,
    guard_s: usize,
}

/// With the windows that `toll live` has by default.
const fn live(queries_per_s: f64) -> Live {
    Live { queries_per_s, window_s: 2, guard_s: 1 }
}

/// With windows, guards and switches of so long; four blocks of five are no shams.
const fn blocks_of_an_hour(at: Live) -> usize {
    3_600 * 4 / 5 / (2 * (at.window_s + at.guard_s + 1))
}
const BLOCKS_OF_AN_HOUR: usize = blocks_of_an_hour(live(5_000.0));

const CLASSES: usize = 4;
/// Mean response times, us: two fast classes and two slow ones.
const CLASS_US: [f64; CLASSES] = [120.0, 450.0, 2_000.0, 15_000.0];

/// What a method does while it is on.
#[derive(Clone, Copy, Default)]
struct Effect {
    /// To each response time, ln.
    slower: f64,
    /// To the mix: so much of all queries goes to the slow classes.
    to_slow: f64,
}

fn slower(pct: f64) -> Effect {
    Effect { slower: (1.0 + pct / 100.0).ln(), ..Effect::default() }
}

/// What slows a production server, or both of two: level and mix of the load, and what goes on beside it.
#[derive(Default)]
struct Conditions {
    level: f64,
    /// A deploy changes the level for good.
    deploy: f64,
    mix: f64,
    second: usize,
    phase: usize,
}

/// In one second: ln of all response times, and of the odds of the slow classes.
#[derive(Clone, Copy)]
struct Now {
    ln: f64,
    mix: f64,
}

impl Conditions {
    fn next(&mut self, host: &mut SimulatedHost) -> Now {
        self.level = 0.95 * self.level + 0.03 * host.normal();
        self.mix = 0.98 * self.mix + 0.1 * host.normal();
        if host.draws.below(900) == 0 {
            self.deploy += 0.2 * host.normal();
        }
        // Each minute a job, each ten minutes another; a slow rise and fall over hours.
        let busy = if (self.second + self.phase) % 60 < 8 { 0.3 } else { 0.0 }
            + if (self.second + 7 * self.phase) % 600 < 40 { 0.2 } else { 0.0 };
        let tide = 0.3 * (self.second as f64 / 2_000.0).sin();
        // One burst in a hundred seconds.
        let burst = if host.draws.below(100) == 0 { 0.8 } else { 0.0 };
        self.second += 1;
        Now { ln: self.level + self.deploy + busy + tide + burst, mix: self.mix }
    }
}

/// A server's queries in one second, by class.
type Classes = [ClassWindow; CLASSES];

fn answer(host: &mut SimulatedHost, queries_per_s: f64, now: Now, effect: Effect, into: &mut Classes) {
    let fast = (1.0 / (1.0 + now.mix.exp()) - effect.to_slow).clamp(0.05, 0.95);
    for (k, class) in into.iter_mut().enumerate() {
        let share = if k < 2 { fast } else { 1.0 - fast } / 2.0;
        let count = (queries_per_s * share * (1.0 + 0.2 * host.normal())).max(0.0) as u64;
        let mean_ln =
            CLASS_US[k].ln() + now.ln + effect.slower + host.normal() / (count.max(1) as f64).sqrt();
        class.count += count;
        class.ln_sum += count as f64 * mean_ln;
    }
}

/// Differences of blocks in drawn order: by class at a fixed mix, and of the plain mean.
fn blocks(host: &mut SimulatedHost, live: Live, blocks: usize, effect: Effect) -> [Vec<f64>; 2] {
    let phase = host.draws.below(600) as usize;
    let orders: Vec<bool> = (0..blocks).map(|_| host.draws.below(2) == 0).collect();
    let mut conditions = Conditions { phase, ..Conditions::default() };
    let mut window = |effect: Effect| {
        let mut kept = Classes::default();
        for second in 0..live.guard_s + live.window_s {
            let now = conditions.next(host);
            let mut thrown_away = Classes::default();
            let into = if second < live.guard_s { &mut thrown_away } else { &mut kept };
            answer(host, live.queries_per_s, now, effect, into);
        }
        kept
    };
    let mean = |of: &Classes| {
        let (count, sum) = of.iter().fold((0, 0.0), |(n, sum), class| (n + class.count, sum + class.ln_sum));
        sum / count as f64
    };
    let mut found = [Vec::new(), Vec::new()];
    for on_first in orders {
        let off = Effect::default();
        let first = window(if on_first { effect } else { off });
        let second = window(if on_first { off } else { effect });
        let (on, off) = if on_first { (first, second) } else { (second, first) };
        found[0].push(stratified_change(&on, &off, &[0.25; CLASSES], 1).unwrap());
        found[1].push(mean(&on) - mean(&off));
    }
    found
}

/// The same between two replicas, each of which serves so many queries a second: on at one, then at the other. `own`: of the
/// variance of what slows a server, the share that is its own; the rest slows both at once.
fn crossed_blocks(host: &mut SimulatedHost, live: Live, blocks: usize, effect: Effect, own: f64) -> Vec<f64> {
    let orders: Vec<usize> = (0..blocks).map(|_| host.draws.below(2) as usize).collect();
    let mut conditions: [Conditions; 3] = std::array::from_fn(|_| Conditions {
        phase: host.draws.below(600) as usize,
        ..Conditions::default()
    });
    let mut window = |on_at: usize| {
        let mut kept = [Classes::default(); 2];
        for second in 0..live.guard_s + live.window_s {
            let [both, first, second_server] = conditions.each_mut().map(|at| at.next(host));
            let mut thrown_away = [Classes::default(); 2];
            let into = if second < live.guard_s { &mut thrown_away } else { &mut kept };
            for (number, alone) in [first, second_server].into_iter().enumerate() {
                let sum = |alone: f64, both: f64| own.sqrt() * alone + (1.0 - own).sqrt() * both;
                let now = Now { ln: sum(alone.ln, both.ln), mix: sum(alone.mix, both.mix) };
                let here = if on_at == number { effect } else { Effect::default() };
                answer(host, live.queries_per_s, now, here, &mut into[number]);
            }
        }
        kept
    };
    let change = |on: &Classes, off: &Classes| stratified_change(on, off, &[0.25; CLASSES], 1).unwrap();
    orders
        .into_iter()
        .map(|first_at| {
            let (first, second) = (window(first_at), window(1 - first_at));
            let [at_first, at_second] = if first_at == 0 { [&first, &second] } else { [&second, &first] };
            (change(&at_first[0], &at_second[0]) + change(&at_second[1], &at_first[1])) / 2.0
        })
        .collect()
}

/// Blocks of the pilot, which switches nothing and gives the scale.
const PILOT: usize = 12;

/// Scales of the two outcomes.
fn scales(seed: u64, live: Live) -> [f64; 2] {
    blocks(&mut SimulatedHost::new(seed + RUNS), live, PILOT, Effect::default()).map(|d| toll_stats::sd(&d))
}

#[test]
fn system_a_thousand_days_of_a_server_with_users() {
    for queries_per_s in [200.0, 5_000.0] {
        let none = share_pct(
            &format!("an hour live at {queries_per_s} queries/s, no effect: any verdict at any look"),
            0..RUNS,
            |seed| {
                let [d, _] = blocks(
                    &mut SimulatedHost::new(seed),
                    live(queries_per_s),
                    BLOCKS_OF_AN_HOUR,
                    Effect::default(),
                );
                ever_misses(&d, scales(seed, live(queries_per_s))[0], 0.0)
            },
        );
        assert!(none <= 5.0, "{none}");
    }
    let missed = share_pct("the same with +15%: any interval without it", 0..RUNS, |seed| {
        let [d, _] = blocks(&mut SimulatedHost::new(seed), live(200.0), BLOCKS_OF_AN_HOUR, slower(15.0));
        ever_misses(&d, scales(seed, live(200.0))[0], slower(15.0).slower)
    });
    assert!(missed <= 5.0, "{missed}");
    // What the fixed mix is for: the plain mean spreads nearly twice as wide.
    let widths: Vec<f64> = (0..100)
        .map(|seed| {
            let [by_class, plain] =
                blocks(&mut SimulatedHost::new(seed), live(200.0), BLOCKS_OF_AN_HOUR, Effect::default());
            toll_stats::sd(&plain) / toll_stats::sd(&by_class)
        })
        .collect();
    println!("spread of the plain mean over that at a fixed mix: {:.1}", median(&widths));
    assert!(median(&widths) > 1.5);
}

#[test]
fn system_a_mix_that_shifts_with_the_method_is_no_effect_of_it() {
    let shifted = Effect { to_slow: 0.2, ..Effect::default() };
    let verdicts = |kind: usize, what: &str| {
        share_pct(
            &format!("a fifth of the queries to slow classes while it is on: any verdict, {what}"),
            0..RUNS,
            |seed| {
                let d = blocks(&mut SimulatedHost::new(seed), live(5_000.0), BLOCKS_OF_AN_HOUR, shifted);
                ever_misses(&d[kind], scales(seed, live(5_000.0))[kind], 0.0)
            },
        )
    };
    let by_class = verdicts(0, "by class");
    assert!(by_class <= 5.0, "{by_class}");
    let plain = verdicts(1, "plain mean");
    assert!(plain >= 95.0, "{plain}");
}

#[test]
fn an_hour_at_5000_queries_a_second_finds_three_percent() {
    const SOME: u64 = 200;
    let found = |at: Live, pct: f64| {
        let what = format!("an hour, windows of {} s: +{pct}% found at some look", at.window_s);
        share_pct(&what, 0..SOME, |seed| {
            let [d, _] = blocks(&mut SimulatedHost::new(seed), at, blocks_of_an_hour(at), slower(pct));
            ever_misses(&d, scales(seed, at)[0], 0.0)
        })
    };
    let small = found(live(5_000.0), 3.0);
    assert!(small >= 80.0, "{small}");
    // Windows that are further apart differ by more, and are fewer.
    let long = Live { window_s: 10, guard_s: 5, ..live(5_000.0) };
    let [three, _, fifteen] = [3.0, 5.0, 15.0].map(|pct| found(long, pct));
    assert!(three < small && fifteen >= 95.0, "{three} {fifteen}");
}

#[test]
fn crossing_over_between_two_replicas_takes_out_what_slows_both() {
    const SOME: u64 = 100;
    let at = live(5_000.0);
    let spread_of_one: Vec<f64> = (0..SOME).map(|seed| scales(seed, at)[0]).collect();
    let ratio = |own: f64| {
        let of_two = |seed| crossed_blocks(&mut SimulatedHost::new(seed), at, PILOT, Effect::default(), own);
        let spread: Vec<f64> = (0..SOME).map(|seed| toll_stats::sd(&of_two(seed))).collect();
        let ratio = median(&spread) / median(&spread_of_one);
        println!(
            "two replicas, {:.0}% of what slows one its own: spread over that of one: {ratio:.2}",
            100.0 * own
        );
        ratio
    };
    let [all_own, half, a_tenth, none] = [1.0, 0.5, 0.1, 0.0].map(ratio);
    // Twice as many windows are worth a factor of 0.71 by themselves.
    assert!((0.6..0.8).contains(&all_own), "{all_own}");
    assert!(half < 0.6 && a_tenth < 0.3 && none < 0.15, "{half} {a_tenth} {none}");
}

#[test]
fn system_crossed_replicas_give_no_verdict_where_there_is_nothing() {
    let at = live(5_000.0);
    for (own, pct) in [(0.1, 1.0), (0.5, 2.0)] {
        let misses = |seed, effect: Effect| {
            let blocks =
                |seed, count, effect| crossed_blocks(&mut SimulatedHost::new(seed), at, count, effect, own);
            let scale = toll_stats::sd(&blocks(seed + RUNS, PILOT, Effect::default()));
            ever_misses(&blocks(seed, BLOCKS_OF_AN_HOUR, effect), scale, 0.0)
        };
        let what = format!("an hour at two replicas, {:.0}% their own", 100.0 * own);
        let none = share_pct(&format!("{what}, no effect: any verdict at any look"), 0..RUNS, |seed| {
            misses(seed, Effect::default())
        });
        assert!(none <= 5.0, "{none}");
        let found = share_pct(&format!("{what}: +{pct}% found at some look"), 0..100, |seed| {
            misses(seed, slower(pct))
        });
        assert!(found >= 80.0, "{found}");
    }
}
