//! Packet accounting: losses at each stage from the sender to the file, and a check that they add up.
//!
//! A stage's loss is the previous stage's count minus its own. Its drop counter should report the same. If
//! not, packets were lost that no counter reports.

use super::warnings::RunWarning;
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{Ledger, LedgerStage, Plan, Stage};
use toll_sys::count_format::format_count;

/// Loss of a stage, computed and as counted. `None` if the two stages did not count the same packets.
fn stage_loss(before: &Stage, stage: &Stage) -> Option<StageLoss> {
    let counted = stage.lost?;
    Some(StageLoss { packets: before.packets as i128 - stage.packets as i128, counted })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StageLoss {
    /// Below zero: more packets arrived than were sent.
    packets: i128,
    counted: u64,
}

impl StageLoss {
    fn adds_up(self) -> bool {
        self.packets == i128::from(self.counted)
    }
}

/// True if both ends and all stages between them were counted.
fn is_complete(stages: &[Stage]) -> bool {
    let ends = stages.first().zip(stages.last());
    ends.is_some_and(|(first, last)| first.name == "sent" && last.name == "written")
        && stages.iter().skip(1).all(|stage| stage.lost.is_some())
}

/// Packets sent that are not in the file, percent. `None` if unknown.
pub fn lost_share_pct(stages: &[Stage]) -> Option<f64> {
    let (first, last) = stages.first().zip(stages.last()).filter(|_| is_complete(stages))?;
    (first.packets > 0)
        .then(|| 100.0 * first.packets.saturating_sub(last.packets) as f64 / first.packets as f64)
}

/// Accounting of one arm's windows. `None` if nothing went through a link.
pub fn account_packets<'a>(windows: impl Iterator<Item = &'a Window>) -> Option<Ledger> {
    let trials: Vec<&[Stage]> =
        windows.map(|window| window.stages.as_slice()).filter(|stages| !stages.is_empty()).collect();
    let longest = trials.iter().max_by_key(|stages| stages.len())?;
    let of_stage = |name: &str| {
        let found = trials.iter().filter_map(|stages| {
            let at = stages.iter().position(|stage| stage.name == name)?;
            let before = at.checked_sub(1).map(|before| &stages[before]);
            // Where the count of these packets began.
            let first = stages[..=at].iter().rev().find(|stage| stage.lost.is_none())?;
            Some((first, before, &stages[at]))
        });
        let (mut packets, mut lost, mut counted, mut shares) = (0, None, None, Vec::new());
        for (first, before, stage) in found {
            packets += stage.packets;
            let Some(loss) = before.and_then(|before| stage_loss(before, stage)) else { continue };
            let missing = u64::try_from(loss.packets).unwrap_or(0);
            *lost.get_or_insert(0) += missing;
            *counted.get_or_insert(0) += loss.counted;
            if first.packets > 0 {
                shares.push(100.0 * missing as f64 / first.packets as f64);
            }
        }
        LedgerStage {
            name: name.to_owned(),
            packets,
            lost,
            lost_counted: counted,
            lost_pct: (!shares.is_empty()).then(|| toll_stats::mean(&shares)),
        }
    };
    let adds_up = |stages: &&&[Stage]| {
        stages.windows(2).all(|pair| stage_loss(&pair[0], &pair[1]).is_none_or(StageLoss::adds_up))
    };
    Some(Ledger {
        trials: trials.len() as u32,
        whole: trials.iter().filter(|stages| is_complete(stages)).count() as u32,
        adds_up: trials.iter().filter(adds_up).count() as u32,
        stages: longest.iter().map(|stage| of_stage(&stage.name)).collect(),
    })
}

/// A warning for each arm whose accounting does not add up.
pub fn check_accounting(plan: &Plan, windows: &[Window]) -> Vec<RunWarning> {
    let mut by_arm: BTreeMap<usize, (usize, BTreeMap<&str, i128>)> = BTreeMap::new();
    for window in windows {
        let mut is_off = false;
        for pair in window.stages.windows(2) {
            let Some(loss) = stage_loss(&pair[0], &pair[1]).filter(|loss| !loss.adds_up()) else { continue };
            is_off = true;
            let (_, gaps) = by_arm.entry(window.arm).or_default();
            *gaps.entry(pair[1].name.as_str()).or_default() += loss.packets - i128::from(loss.counted);
        }
        if is_off {
            by_arm.entry(window.arm).or_default().0 += 1;
        }
    }
    let doubt = |(arm, (trials, gaps)): (usize, (usize, BTreeMap<&str, i128>))| RunWarning::AccountingGap {
        arm: plan.arms[arm].name.clone(),
        trials,
        of: windows.iter().filter(|window| window.arm == arm && !window.stages.is_empty()).count(),
        gaps: gaps
            .into_iter()
            .map(|(stage, packets)| describe_loss(stage, packets))
            .collect::<Vec<_>>()
            .join(", "),
    };
    by_arm.into_iter().map(doubt).collect()
}

fn describe_loss(stage: &str, packets: i128) -> String {
    let count = format_count(u64::try_from(packets.unsigned_abs()).unwrap_or(u64::MAX), "packet");
    match packets < 0 {
        false => format!("{count} lost before `{stage}`"),
        true => format!("{count} too many at `{stage}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stages: &[(&str, u64, Option<u64>)]) -> Window {
        let stage = |&(name, packets, lost): &(&str, u64, Option<u64>)| Stage {
            name: name.to_owned(),
            packets,
            lost,
        };
        Window {
            trial: 0,
            round: 0,
            arm: 0,
            on_us: Some(0),
            begin_us: 0,
            end_us: 1,
            cpu: None,
            runs: None,
            artefact_bytes: None,
            processes: Vec::new(),
            stages: stages.iter().map(stage).collect(),
        }
    }

    const WHOLE: [(&str, u64, Option<u64>); 4] = [
        ("sent", 1_000, None),
        ("seen", 990, Some(10)),
        ("captured", 890, Some(100)),
        ("written", 890, Some(0)),
    ];

    #[test]
    fn what_is_lost_is_told_at_its_stage_and_adds_up() {
        let mut all = WHOLE;
        all[2] = ("captured", 990, Some(0));
        all[3] = ("written", 990, Some(0));
        let windows = [window(&WHOLE), window(&all)];
        let ledger = account_packets(windows.iter()).unwrap();
        assert_eq!((ledger.trials, ledger.whole, ledger.adds_up), (2, 2, 2));
        let captured = &ledger.stages[2];
        assert_eq!((captured.packets, captured.lost, captured.lost_counted), (1_880, Some(100), Some(100)));
        assert_eq!((captured.lost_pct, ledger.stages[0].lost_pct), (Some(5.0), None));
        assert_eq!(lost_share_pct(&windows[0].stages), Some(11.0));
    }

    #[test]
    fn packets_that_nobody_counted_are_found_at_their_stage() {
        let mut dropped = WHOLE;
        dropped[1] = ("seen", 989, Some(10));
        dropped[2] = ("captured", 889, Some(100));
        dropped[3] = ("written", 889, Some(0));
        let windows = [window(&dropped), window(&WHOLE)];
        let ledger = account_packets(windows.iter()).unwrap();
        assert_eq!((ledger.trials, ledger.adds_up), (2, 1));
        assert_eq!((ledger.stages[1].lost, ledger.stages[1].lost_counted), (Some(21), Some(20)));
        // More than were sent is no loss, and adds up as little.
        let mut more = WHOLE;
        more[3] = ("written", 891, Some(0));
        assert_eq!(account_packets([window(&more)].iter()).unwrap().adds_up, 0);
    }

    #[test]
    fn stages_that_did_not_count_the_same_say_nothing_of_what_lies_between() {
        let cut = [
            ("sent", 1_000, None),
            ("received", 1_000, Some(0)),
            ("seen", 300, None),
            ("written", 290, Some(10)),
        ];
        let ledger = account_packets([window(&cut)].iter()).unwrap();
        assert_eq!((ledger.whole, ledger.adds_up, ledger.stages[2].lost), (0, 1, None));
        assert!((ledger.stages[3].lost_pct.unwrap() - 10.0 / 3.0).abs() < 1e-9, "{ledger:?}");
        assert_eq!(lost_share_pct(&window(&cut).stages), None);
        assert_eq!(account_packets([window(&[])].iter()), None);
    }
}
