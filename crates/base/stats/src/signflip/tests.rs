//! Tests of the sign-flip test against its definition.

use super::*;

/// p(theta) straight from its definition.
fn p_by_definition(d: &[f64], theta: f64) -> f64 {
    let signed = |mask: u64| -> f64 {
        let sign = |i: usize| if mask >> i & 1 == 1 { 1.0 } else { -1.0 };
        d.iter().enumerate().map(|(i, v)| sign(i) * (v - theta)).sum::<f64>().abs()
    };
    let observed = signed(u64::MAX) * (1.0 - 1e-12);
    let vectors = 1_u64 << d.len();
    (0..vectors).filter(|&mask| signed(mask) >= observed).count() as f64 / vectors as f64
}

fn some_differences(n: usize, seed: u64) -> Vec<f64> {
    let mut draws = SeededRng::new(seed, 0);
    (0..n).map(|_| 0.3 * draws.next_fraction() - 0.1).collect()
}

#[test]
fn p_and_both_ends_agree_with_the_definition() {
    for n in 6..=12 {
        for seed in 0..4 {
            let d = some_differences(n, seed);
            let got = sign_flip(&d, 0.05, 0);
            assert_eq!(got.p, p_by_definition(&d, 0.0), "n={n} seed={seed}");
            let Interval { low, high } = got.interval.unwrap();
            for (end, outward) in [(low, -1e-7), (high, 1e-7)] {
                assert!(p_by_definition(&d, end - outward) > 0.05, "n={n} seed={seed}");
                assert!(p_by_definition(&d, end + outward) <= 0.05, "n={n} seed={seed}");
            }
        }
    }
}

#[test]
fn six_rounds_are_the_fewest_for_95_and_eight_for_99_percent() {
    assert_eq!((rounds_for_interval(0.05), rounds_for_interval(0.01)), (6, 8));
    assert_eq!((rounds_for_interval(0.05 / 16.0), rounds_for_interval(1e-9)), (10, usize::MAX));
    let five = sign_flip(&[1.0, 1.1, 0.9, 1.2, 0.8], 0.05, 0);
    assert_eq!(five.interval, Err(IntervalError::TooFewRounds { have: 5, need: 6 }));
    assert_eq!(five.p, 0.0625);
    assert!(sign_flip(&[1.0, 1.1, 0.9, 1.2, 0.8, 1.0], 0.05, 0).interval.is_ok());
}

#[test]
fn with_six_rounds_the_interval_is_the_range_of_the_data() {
    // 2^-5 = 1/32 <= .05 < 2/32: one split may be left out, and the most extreme is a single value.
    let got = sign_flip(&[0.5, 0.1, 0.4, 0.2, 0.3, 0.9], 0.05, 0).interval.unwrap();
    assert!((got.low - 0.1).abs() < 1e-9 && (got.high - 0.9).abs() < 1e-9, "{got:?}");
}

#[test]
fn zero_lies_outside_exactly_when_p_is_at_most_alpha() {
    for seed in 0..200 {
        // On a grid, so that ties are frequent and zero often is an end.
        let whole: Vec<f64> = some_differences(9, seed).iter().map(|v| (v * 20.0).round()).collect();
        let d: Vec<f64> = whole.iter().map(|v| v * 0.1).collect();
        let got = sign_flip(&d, 0.05, 0);
        assert_eq!(got.p, p_by_definition(&whole, 0.0), "{d:?}");
        assert_eq!(got.interval.unwrap().contains(0.0), got.p > 0.05, "{d:?} {got:?}");
    }
}

#[test]
fn drawn_vectors_agree_with_all_vectors() {
    let d = some_differences(16, 5);
    let exact = bounds_of_one(&d, &SignVectors::draw(16, 0)).find_bounds(1638);
    let (low, high) = bounds_of_one(&d, &drawn(16)).find_bounds(1000);
    let width = exact.1 - exact.0;
    assert!((low - exact.0).abs() < 0.03 * width && (high - exact.1).abs() < 0.03 * width);
}

#[test]
fn drawn_vectors_of_one_sign_count_as_the_observed_one_does() {
    let p = bounds_of_one(&[0.1; 6], &drawn(6)).p(9.0, 0.0);
    // 1/32 of 20,000 is 625; 4 standard deviations are 98.
    assert!((p * 20_000.0 - 625.0).abs() < 98.0, "{p}");
}

/// As of more rounds than are counted one by one; those beyond the arm's own are not looked at.
fn drawn(rounds: usize) -> SignVectors {
    let mut vectors = SignVectors::draw(MAX_EXACT_ROUNDS + 1, 1);
    vectors.bits.iter_mut().for_each(|bits| *bits &= (1 << rounds) - 1);
    vectors
}

fn bounds_of_one(d: &[f64], vectors: &SignVectors) -> ThetaBounds {
    let by_round: Vec<Option<f64>> = d.iter().copied().map(Some).collect();
    let arm = Centred::new(&by_round, &(0..d.len()).collect::<Vec<_>>(), vectors).unwrap();
    ThetaBounds::new(&arm, vectors, |_| 0.0)
}

/// Some arms of `rounds` rounds, with effects, of which some rounds are missing.
fn some_arms(rounds: usize, seed: u64) -> Vec<Vec<Option<f64>>> {
    let mut draws = SeededRng::new(seed, 7);
    let baseline: Vec<f64> = (0..rounds).map(|_| draws.next_fraction()).collect();
    let arms = 1 + seed as usize % 5;
    (0..arms)
        .map(|k| {
            let effect = 0.4 * k as f64 * draws.next_fraction();
            let gaps = draws.below(4) == 0;
            let one = |baseline: &f64| {
                let d = draws.next_fraction() - baseline + effect;
                (!gaps || draws.below(5) > 0).then_some(d)
            };
            baseline.iter().map(one).collect()
        })
        .collect()
}

fn together(arms: &[Vec<Option<f64>>]) -> Vec<SignFlip> {
    simultaneous_sign_flips(&arms.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0.05, 1)
}

fn alone(arm: &[Option<f64>]) -> SignFlip {
    sign_flip(&arm.iter().flatten().copied().collect::<Vec<_>>(), 0.05, 1)
}

#[test]
fn p_of_arms_together_agrees_with_its_definition() {
    for (rounds, seed) in [(6, 1), (7, 2), (8, 3), (9, 4), (9, 8), (10, 9)] {
        let arms = some_arms(rounds, seed);
        let t = |d: &[f64]| {
            let error = crate::sd(d) / (d.len() as f64).sqrt();
            if mean(d) == 0.0 { 0.0 } else { (mean(d) / error).abs() }
        };
        // Under a vector, with `about` taken from every difference first.
        let flipped = |arm: &[Option<f64>], about: f64, vector: u32| {
            let sign = |round: usize| if vector >> round & 1 == 1 { 1.0 } else { -1.0 };
            let signed = arm.iter().enumerate().filter_map(|(i, d)| Some(sign(i) * (d.as_ref()? - about)));
            t(&signed.collect::<Vec<_>>())
        };
        for (k, got) in together(&arms).into_iter().enumerate() {
            let present: Vec<f64> = arms[k].iter().flatten().copied().collect();
            if present.len() < 6 {
                continue;
            }
            let counts = |vector: &u32| {
                let others =
                    arms.iter().enumerate().filter(|(j, arm)| *j != k && arm.iter().flatten().count() >= 6);
                let others = others.map(|(_, arm)| {
                    flipped(arm, mean(&arm.iter().flatten().copied().collect::<Vec<_>>()), *vector)
                });
                let largest = others.fold(flipped(&arms[k], 0.0, *vector), f64::max);
                largest >= t(&present) * (1.0 - 1e-9)
            };
            let p = (0..1_u32 << rounds).filter(counts).count() as f64 / f64::from(1_u32 << rounds);
            assert!((got.p - p).abs() < 1e-12, "rounds={rounds} seed={seed} arm={k}: {} {p}", got.p);
        }
    }
}

#[test]
fn verdict_and_interval_of_arms_together_never_disagree() {
    let (mut inside, mut outside) = (0, 0);
    for seed in 0..400 {
        let mut arms = some_arms(6 + seed as usize % 9, seed);
        if seed % 3 == 0 {
            // On a grid, so that ties are frequent and zero often is an end.
            arms.iter_mut().flatten().flatten().for_each(|d| *d = (*d * 10.0).round() * 0.1);
        }
        for (arm, got) in arms.iter().zip(together(&arms)) {
            let Ok(interval) = got.interval else { continue };
            assert_eq!(interval.contains(0.0), got.p > 0.05, "seed={seed} {arm:?} {got:?}");
            assert!(interval.contains(got.mean));
            *if got.p > 0.05 { &mut inside } else { &mut outside } += 1;
        }
    }
    assert!(inside > 100 && outside > 100, "{inside} {outside}");
}

#[test]
fn company_only_widens_an_interval_and_one_arm_is_tested_as_alone() {
    for seed in 0..100 {
        let arms = some_arms(6 + seed as usize % 14, seed);
        for (arm, got) in arms.iter().zip(together(&arms)) {
            let alone = alone(arm);
            if arms.len() == 1 {
                assert_eq!(got, alone, "seed={seed}");
            }
            if let (Ok(wide), Ok(narrow)) = (got.interval, alone.interval)
                && arms.iter().flatten().all(Option::is_some)
            {
                assert!(wide.low <= narrow.low && wide.high >= narrow.high && got.p >= alone.p);
            }
        }
    }
}

#[test]
fn an_arm_that_cannot_be_judged_costs_the_others_nothing() {
    let mut arms = some_arms(9, 4);
    let without = together(&arms);
    arms.push(vec![Some(5.0), Some(-5.0), None]);
    arms.push(vec![Some(f64::NAN); 9]);
    arms.push(vec![]);
    let with = together(&arms);
    assert_eq!(with[..without.len()], without);
    assert_eq!(with[5].interval, Err(IntervalError::TooFewRounds { have: 2, need: 6 }));
    assert_eq!(with[6].interval, Err(IntervalError::NotFinite));
    assert_eq!(with[7].interval, Err(IntervalError::TooFewRounds { have: 0, need: 6 }));
    assert!(simultaneous_sign_flips(&[], 0.05, 1).is_empty());
}

#[test]
fn flips_that_leave_another_arm_no_spread_give_no_interval_rather_than_an_endless_one() {
    let even: Vec<Option<f64>> = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0].map(Some).to_vec();
    let other: Vec<Option<f64>> = [2.0, 2.1, 1.9, 2.05, 1.95, 2.2].map(Some).to_vec();
    let got = together(&[even, other]);
    assert_eq!(got[1].interval, Err(IntervalError::TooFewRounds { have: 6, need: 7 }));
    assert!(got[1].p > 0.05);
}

#[test]
fn many_rounds_give_a_narrow_interval_that_repeats_with_the_seed() {
    for n in [17, 64, 65, 130] {
        let d = some_differences(n, 1);
        let got = sign_flip(&d, 0.05, 3);
        let Interval { low, high } = got.interval.unwrap();
        // Uniform on .3 wide: sd .0866, so about +-.17 / sqrt(n) around .05.
        let half = 0.17 / (n as f64).sqrt();
        assert!(((high - low) / 2.0 / half - 1.0).abs() < 0.25, "n={n} {low} {high}");
        assert_eq!(got, sign_flip(&d, 0.05, 3));
    }
}

#[test]
fn constant_differences_are_exact_and_zero_ones_are_no_evidence() {
    let same = sign_flip(&[0.25; 8], 0.05, 0);
    assert_eq!(same.p, smallest_p(8));
    assert!(same.interval.unwrap().contains(0.25) && !same.interval.unwrap().contains(0.2499));
    let none = sign_flip(&[0.0; 8], 0.05, 0);
    assert_eq!((none.p, none.interval), (1.0, Ok(Interval { low: 0.0, high: 0.0 })));
}

#[test]
fn what_is_not_a_number_gives_no_interval_and_no_evidence() {
    assert_eq!(sign_flip(&[], 0.05, 0).interval, Err(IntervalError::TooFewRounds { have: 0, need: 6 }));
    let nan = sign_flip(&[f64::NAN; 8], 0.05, 0);
    assert_eq!((nan.p, nan.interval), (1.0, Err(IntervalError::NotFinite)));
    assert!(matches!(sign_flip(&[1.0; 8], 0.0, 0).interval, Err(IntervalError::InvalidAlpha { .. })));
}
