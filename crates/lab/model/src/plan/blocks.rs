//! Blocks of two windows, for a server that serves users: as little exposure as a comparison needs.
//!
//! A block holds one window of the baseline and one of a treatment, in an order that is drawn for it. The treatments take
//! turns, each once before any comes again, in an order that is drawn for each turn. Each fifth block holds the baseline twice:
//! the A/A of that very hour on that very server.

use toll_record::{Plan, Role};

/// Blocks from one sham to the next.
const SHAM_EVERY: usize = 5;

/// The first `count` blocks, drawn from the plan's seed. A longer series begins with the shorter one.
pub(super) fn draw_blocks(plan: &Plan, count: u32) -> Vec<Vec<String>> {
    let of_role = |roles: &[Role]| -> Vec<&String> {
        let runnable = plan.arms.iter().filter(|arm| arm.unavailable.is_none() && roles.contains(&arm.role));
        runnable.map(|arm| &arm.name).collect()
    };
    let treatments = of_role(&[Role::Treatment, Role::Placebo, Role::PositiveControl]);
    let shams = of_role(&[Role::Aa]);
    if treatments.is_empty() {
        return Vec::new();
    }
    let count = count as usize;
    let is_first = toll_stats::draw_orders(plan.seed, 2, count);
    let mut turns =
        toll_stats::draw_orders(plan.seed.wrapping_add(1), treatments.len(), count).into_iter().flatten();
    let mut shams = shams.into_iter().cycle();
    let mut other = |block: usize| {
        let sham = if block % SHAM_EVERY == SHAM_EVERY - 1 { shams.next() } else { None };
        sham.or_else(|| turns.next().map(|turn| treatments[turn]))
    };
    let block = |(block, order): (usize, &Vec<usize>)| {
        let pair = [&plan.baseline, other(block)?];
        Some(order.iter().map(|&i| pair[i].clone()).collect())
    };
    is_first.iter().enumerate().filter_map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use toll_record::Arm;

    fn plan(treatments: usize) -> Plan {
        let arm = |name: &str, role: &str| -> Arm {
            serde_json::from_value(serde_json::json!({
                "name": name, "title": name, "role": role, "command": "", "artefact": null, "unavailable": null,
                "burn_share": null, "meter": "server", "window": { "until": "time", "s": 10.0 }, "settle_s": 5.0,
                "workload": { "driver": "none", "profile": "", "transport": "tcp", "threads": 1, "tables": 1, "rows": 1,
                              "prepared": false, "rate_per_s": null },
            }))
            .unwrap()
        };
        let treatments = (0..treatments).map(|i| arm(&format!("t{i}"), "treatment"));
        let arms: Vec<Arm> =
            [arm("off", "baseline"), arm("sham", "aa")].into_iter().chain(treatments).collect();
        serde_json::from_value(serde_json::json!({
            "format": 1, "toll_version": "", "command": [], "scenario": "", "question": "", "profile": "", "seed": 7,
            "baseline": "off", "primary": "", "outcomes": [], "columns": [], "panels": [], "margin_pct": 2.0, "alpha": 0.05,
            "rounds": 1, "window_s": 10.0, "settle_s": 5.0, "gap_s": 0.0, "pilot_s": 0.0, "early_stop": true,
            "setup": {}, "arms": arms, "order": [], "jitter": 0.2, "started_wall_us": 0, "planned_mde_pct": null,
        }))
        .unwrap()
    }

    #[test]
    fn each_fifth_block_is_a_sham_and_treatments_take_turns() {
        let plan = plan(3);
        let blocks = draw_blocks(&plan, 20);
        assert_eq!(blocks.len(), 20);
        let others: Vec<&String> =
            blocks.iter().map(|block| block.iter().find(|name| *name != "off").unwrap()).collect();
        assert!(blocks.iter().all(|block| block.len() == 2 && block.contains(&"off".to_owned())));
        assert!((0..20).all(|i| (others[i] == "sham") == (i % 5 == 4)), "{others:?}");
        let tested: Vec<&&String> = others.iter().filter(|name| **name != "sham").collect();
        for turn in tested.chunks(3) {
            let distinct: std::collections::BTreeSet<_> = turn.iter().collect();
            assert_eq!(distinct.len(), turn.len(), "{tested:?}");
        }
        assert_eq!(draw_blocks(&plan, 7), blocks[..7]);
    }

    #[test]
    fn either_window_comes_first_as_often() {
        let blocks = draw_blocks(&plan(1), 1_000);
        let mut first: BTreeMap<&str, u32> = BTreeMap::new();
        for block in &blocks {
            *first.entry(block[0].as_str()).or_default() += 1;
        }
        assert!((450..=550).contains(&first["off"]), "{first:?}");
        assert!(draw_blocks(&plan(0), 5).is_empty());
    }
}
