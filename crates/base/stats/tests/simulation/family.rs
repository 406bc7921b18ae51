//! Family-wise error rate of many variants that are judged together.

use crate::share_pct;
use crate::simulated_host::SimulatedHost;
use toll_stats::{SignFlip, draw_orders, sign_flip, simultaneous_sign_flips};

const SD: f64 = 0.03;

/// Differences of `arms` arms from one baseline, whose noise they share; arm k has effect `effect(k)`.
fn differences(
    seed: u64,
    arms: usize,
    rounds: usize,
    effect: impl Fn(usize) -> f64,
    noise: fn(&mut SimulatedHost) -> f64,
) -> Vec<Vec<Option<f64>>> {
    let mut world = SimulatedHost::new(seed);
    let baseline: Vec<f64> = (0..rounds).map(|_| noise(&mut world)).collect();
    (0..arms)
        .map(|k| baseline.iter().map(|b| Some(SD * (noise(&mut world) - b) + effect(k))).collect())
        .collect()
}

/// As many as a test may take: where vectors are drawn, there are 20,000 of them.
fn runs(rounds: usize) -> u64 {
    match rounds {
        ..10 => 4_000,
        10..=16 => 1_000,
        _ => 200,
    }
}

/// Other seeds for each number of rounds, or one unlucky seed would count several times.
fn seeds(rounds: usize) -> std::ops::Range<u64> {
    let first = 10_000 * rounds as u64;
    first..first + runs(rounds)
}

/// `share` of `runs(rounds)` may well come from a true share of 5%.
#[track_caller]
fn is_at_most_5_pct(share: f64, rounds: usize) {
    let most = 5.0 + 3.5 * (5.0 * 95.0 / runs(rounds) as f64).sqrt();
    assert!(share <= most, "{share}% is above {most:.1}%");
}

fn together(arms: &[Vec<Option<f64>>], seed: u64) -> Vec<SignFlip> {
    simultaneous_sign_flips(&arms.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0.05, seed)
}

fn alone(arm: &[Option<f64>], seed: u64) -> SignFlip {
    sign_flip(&arm.iter().flatten().copied().collect::<Vec<_>>(), 0.05, seed)
}

/// Which of the arms are told from nothing after S. Holm's correction (1979) of each one's own p.
fn by_holm(arms: &[Vec<Option<f64>>], seed: u64) -> usize {
    let mut p: Vec<f64> = arms.iter().map(|arm| alone(arm, seed).p).collect();
    p.sort_by(f64::total_cmp);
    let arms = p.len();
    p.iter().enumerate().take_while(|&(rank, p)| p * (arms - rank) as f64 <= 0.05).count()
}

/// The difference of two of these is symmetric, as of like windows, with one in ten 5 times as wild.
fn heavy_tailed(world: &mut SimulatedHost) -> f64 {
    let scale = if world.draws.below(10) == 0 { 5.0 } else { 1.0 };
    scale * world.normal()
}

#[test]
fn sixteen_arms_that_do_nothing_seldom_give_any_false_verdict() {
    for (what, noise) in [
        ("normal", SimulatedHost::normal as fn(&mut SimulatedHost) -> f64),
        ("one window in ten wild", heavy_tailed),
    ] {
        for n in [6, 7, 12, 40] {
            let what = format!("16 arms that do nothing, {what}, {n} rounds: any false verdict");
            let share = share_pct(&what, seeds(n), |seed| {
                let arms = differences(seed, 16, n, |_| 0.0, noise);
                together(&arms, seed).iter().any(|found| found.p <= 0.05)
            });
            is_at_most_5_pct(share, n);
        }
    }
}

/// Whatever the effects: none, all the same, all different, one arm against fifteen.
#[test]
fn all_intervals_hold_their_effects_at_once() {
    type Effect = fn(usize) -> f64;
    let cases: [(&str, Effect); 3] = [
        ("all alike", |_| -0.05),
        ("from 0 to 30%", |k| 0.02 * k as f64),
        ("one of 50%, the others none", |k| if k == 0 { 0.5 } else { 0.0 }),
    ];
    for (what, effect) in cases {
        for n in [7, 12, 40] {
            let what = format!("16 arms, effects {what}, {n} rounds: all intervals hold");
            let share = share_pct(&what, seeds(n), |seed| {
                let arms = differences(seed, 16, n, effect, SimulatedHost::normal);
                let found = together(&arms, seed);
                found.iter().enumerate().all(|(k, found)| found.interval.unwrap().contains(effect(k)))
            });
            is_at_most_5_pct(100.0 - share, n);
        }
    }
}

/// What the family costs, beside Holm's correction and beside no correction at all.
#[test]
fn the_family_costs_less_where_rounds_are_few() {
    for (n, effect) in [(7, 0.10), (10, 0.07), (12, 0.06), (20, 0.04), (40, 0.03)] {
        const RUNS: u64 = 100;
        let (mut found, mut holm, mut uncorrected, mut wider) = (0, 0, 0, 0.0);
        for seed in 0..RUNS {
            // Half of the arms cost something.
            let arms =
                differences(seed, 16, n, |k| if k % 2 == 0 { effect } else { 0.0 }, SimulatedHost::normal);
            let costly: Vec<_> = arms.iter().step_by(2).cloned().collect();
            let all = together(&arms, seed);
            found += all.iter().step_by(2).filter(|found| found.p <= 0.05).count();
            uncorrected += costly.iter().filter(|arm| alone(arm, seed).p <= 0.05).count();
            holm += by_holm(&arms, seed).min(8);
            let width = |found: &SignFlip| found.interval.map_or(f64::NAN, |i| i.high - i.low);
            wider += width(&all[0]) / width(&alone(&arms[0], seed)) / RUNS as f64;
        }
        let share = |count: usize| 100.0 * count as f64 / (8 * RUNS) as f64;
        println!(
            "{n} rounds, 8 of 16 arms cost {:.0}%: found together {:.0}%, by Holm {:.0}%, uncorrected {:.0}%; \
             intervals {wider:.2} times as wide as alone",
            100.0 * effect,
            share(found),
            share(holm),
            share(uncorrected),
        );
        assert!(n > 7 || (holm == 0 && share(found) > 40.0), "{n} rounds: {found} {holm}");
        assert!(share(found) > share(holm) - 10.0, "{n} rounds: {found} {holm}");
    }
}

/// On a host that drifts, ordered at random within rounds, against one baseline.
#[test]
fn on_a_drifting_host_five_arms_that_do_nothing_keep_the_rate() {
    const ARMS: usize = 6;
    const ROUNDS: usize = 14;
    let share = share_pct("A/A, 5 arms, any false verdict", seeds(ROUNDS), |seed| {
        let mut world = SimulatedHost::new(seed);
        let mut level = 0.0;
        let mut values = vec![[0.0; ARMS]; ROUNDS];
        for (round, order) in draw_orders(seed, ARMS, ROUNDS).iter().enumerate() {
            for &arm in order {
                level = 0.9 * level + 0.02 * world.normal();
                values[round][arm] = level;
            }
        }
        let arms: Vec<Vec<Option<f64>>> =
            (1..ARMS).map(|arm| values.iter().map(|v| Some(v[arm] - v[0])).collect()).collect();
        together(&arms, seed).iter().any(|found| found.p <= 0.05)
    });
    is_at_most_5_pct(share, ROUNDS);
}
