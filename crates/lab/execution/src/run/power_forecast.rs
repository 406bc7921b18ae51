//! Power forecast, shown before the run: minimum detectable effect, time needed, and what limits precision.

use crate::trial_loop::Progress;
use anyhow::bail;
use toll_model::plan::sizing::{LONG_ROUNDS, Sizing, SizingInput, TimeTooShort};
use toll_model::plan::{self, MAX_CHOSEN_TIME_S, TimeSettings};
use toll_record::Plan;
use toll_sys::count_format::format_count;

/// Share of a round lost to one arm that is worth reporting, percent.
const MIN_REPORTED_SHARE_PCT: f64 = 10.0;
/// Effect sizes that users request, percent.
const COMMON_EFFECTS_PCT: [f64; 8] = [10.0, 5.0, 3.0, 2.0, 1.0, 0.5, 0.3, 0.2];
/// Longest time that the forecast names, seconds.
const MAX_FORECAST_S: f64 = 7.0 * 86_400.0;

/// Chooses and prints windows and rounds for the time that is left, after `spent_s` seconds.
///
/// # Errors
/// The user's time is too short for an interval, or no allowed time is enough for the requested effect.
pub fn choose_sizing(
    plan: &Plan,
    times: &TimeSettings,
    spent_s: f64,
    progress: &dyn Progress,
) -> anyhow::Result<(Sizing, f64)> {
    let question = plan::sizing_input(plan, times);
    let left_s = times.time_s.map(|time_s| (time_s - spent_s).max(0.0));
    let time_s = match (left_s, times.find_pct) {
        (Some(left_s), None) => left_s,
        (Some(left_s), Some(find)) => {
            question.time_for_mde(toll_stats::pct_to_log_ratio(find), left_s).unwrap_or(left_s)
        }
        (None, find) => time_for_mde(&question, find.unwrap_or(plan.margin_pct), spent_s, progress)?,
    };
    let choice = match question.optimise_within(time_s) {
        Ok(choice) => choice,
        Err(least) if times.time_is_explicit => {
            return Err(time_too_short_error(plan, times, &least, spent_s));
        }
        Err(least) => {
            progress.print_line(&format!(
                "{} is too short for {} here: an interval needs {}; the run takes that long",
                format_duration(time_s + spent_s),
                format_count(question.timings.len() as u64, "variant"),
                format_duration(least.needed_s + spent_s),
            ));
            question
                .optimise_within(least.needed_s)
                .map_err(|least| time_too_short_error(plan, times, &least, spent_s))?
        }
    };
    let all_s = match question.rounds {
        Some(_) => choice.duration_s,
        None => time_s.max(choice.duration_s),
    };
    progress.print_line(&print_forecast(plan, times, &question, &choice, all_s + spent_s, spent_s));
    Ok((choice, all_s))
}

/// Checks, before anything is measured, that the user's time can hold an interval at all.
pub fn check_time(plan: &Plan, times: &TimeSettings) -> anyhow::Result<()> {
    let Some(time_s) = times.time_s.filter(|_| times.time_is_explicit && times.rounds.is_none()) else {
        return Ok(());
    };
    let (baseline_s, arms_s) = plan::pilot_durations_s(plan, times);
    // What an arm takes is not known yet: only what no arm could do with less is refused.
    let mut question = plan::sizing_input(plan, times);
    question.timings.iter_mut().for_each(|slot| slot.switch_s = 0.0);
    let least = question.minimum_time();
    if least.needed_s + baseline_s + arms_s > time_s {
        return Err(time_too_short_error(
            plan,
            times,
            &plan::sizing_input(plan, times).minimum_time(),
            baseline_s + arms_s,
        ));
    }
    Ok(())
}

fn time_too_short_error(
    plan: &Plan,
    times: &TimeSettings,
    least: &TimeTooShort,
    spent_s: f64,
) -> anyhow::Error {
    // Seconds are not promised.
    const TIME_MARGIN: f64 = 1.15;
    let needed_s = (least.needed_s + spent_s) * TIME_MARGIN;
    let arms = plan.order.first().map_or(0, Vec::len);
    anyhow::anyhow!(
        "{} is too short for {}: an interval needs {}, which take {} after a pilot of {}; use --time {} or more, \
         or fewer arms",
        format_duration(times.time_s.unwrap_or(0.0)),
        format_count(arms as u64, "variant"),
        format_count(least.rounds.into(), "round"),
        format_duration(least.needed_s),
        format_duration(spent_s),
        if needed_s > 120.0 {
            format!("{:.0}m", (needed_s / 60.0).ceil())
        } else {
            format!("{:.0}s", needed_s.ceil())
        },
    )
}

fn time_for_mde(
    question: &SizingInput,
    pct: f64,
    spent_s: f64,
    progress: &dyn Progress,
) -> anyhow::Result<f64> {
    let effect = toll_stats::pct_to_log_ratio(pct);
    if let Some(time_s) = question.time_for_mde(effect, MAX_CHOSEN_TIME_S - spent_s) {
        progress.print_line(&format!("detecting {pct}% takes {} here", format_duration(time_s + spent_s)));
        return Ok(time_s);
    }
    let longest = format_duration(MAX_CHOSEN_TIME_S);
    match question.time_for_mde(effect, MAX_FORECAST_S) {
        Some(time_s) => bail!(
            "detecting {pct}% would take {} here, and without --time no run is longer than {longest}: set --time or a \
             larger --find, or leave out variants",
            format_duration(time_s + spent_s)
        ),
        None if question.noise.is_none() => {
            bail!("cannot predict the time needed to detect {pct}% here: set --time")
        }
        None => bail!(
            "an effect of {pct}% is not detectable within a week here: set a larger --find, or leave out variants"
        ),
    }
}

/// Prints the predicted minimum detectable effect of fixed rounds and windows, before the run.
pub fn print_fixed_forecast(plan: &Plan, progress: &dyn Progress) {
    let need = toll_stats::rounds_for_interval(plan.alpha);
    let text = if (plan.rounds as usize) < need {
        let rounds = format_count(plan.rounds.into(), "round");
        let are = if plan.rounds == 1 { "is" } else { "are" };
        format!(
            "{rounds} {are} too few for an interval (at least {need}): overheads are reported without one"
        )
    } else {
        match plan.planned_mde_pct {
            Some(finds) => {
                format!("minimum detectable effect (80% power): {finds:.1}% in {}", plan.primary)
            }
            None => "minimum detectable effect: not predictable (no pilot, too short a pilot, or too few rounds for so \
                     many arms)"
                .to_owned(),
        }
    };
    progress.print_line(&text);
}

fn print_forecast(
    plan: &Plan,
    times: &TimeSettings,
    question: &SizingInput,
    choice: &Sizing,
    all_s: f64,
    spent_s: f64,
) -> String {
    let mut text = format!(
        "{} in {}: {}",
        format_count(question.timings.len() as u64, "variant"),
        format_duration(all_s),
        format_count(choice.rounds.into(), "round"),
    );
    text += &if question.has_timed_windows() {
        format!(" of {} s windows", choice.window_s)
    } else {
        ", each window until what it measures is done".to_owned()
    };
    if let Some(long) = &choice.long_windows {
        text += &format!(
            " and {} of {} s for outcomes that need long windows ({})",
            long.rounds,
            long.window_s,
            plan::long_window_titles(plan).join(", ")
        );
    }
    match choice.mde_ln.map(toll_stats::log_ratio_to_pct) {
        Some(finds) => {
            text += &format!("; minimum detectable effect (80% power): {finds:.1}% in {}", plan.primary);
            let asked = times.find_pct.filter(|asked| *asked < finds);
            let next = COMMON_EFFECTS_PCT.into_iter().find(|pct| *pct < 0.95 * finds);
            if let Some(pct) = asked.or(next.filter(|_| times.find_pct.is_none())) {
                let free = SizingInput { rounds: None, ..question.clone() };
                text += &match free.time_for_mde(toll_stats::pct_to_log_ratio(pct), MAX_FORECAST_S) {
                    Some(time_s) => format!("; {pct}% would take {}", format_duration(time_s + spent_s)),
                    None => format!("; {pct}% is not detectable here"),
                };
            }
        }
        None => text += "; minimum detectable effect: not predictable",
    }
    if let Some(pct) = question.measured_share_pct(choice.window_s) {
        text += &format!("; windows are {pct:.0}% of each round");
    }
    let fair_pct = 100.0 / question.timings.len().max(1) as f64;
    let stands_out = |pct: &f64| *pct >= MIN_REPORTED_SHARE_PCT && *pct >= fair_pct;
    if let Some((arm, pct)) = question.slowest_arm(choice.window_s).filter(|(_, pct)| stands_out(pct)) {
        text += &format!(
            ", {} settles for {:.1} s and takes {:.1} s to switch, that is {pct:.0}% of each round",
            arm.name, arm.settle_s, arm.switch_s
        );
    }
    let had_no_time =
        question.has_timed_windows() && choice.long_windows.is_none() && question.rounds.is_none();
    if question.needs_long_windows && had_no_time {
        text += &format!(
            "; there is no time for {LONG_ROUNDS} rounds of longer windows, so outcomes that need them ({}) are \
             estimated from these",
            plan::long_window_titles(plan).join(", ")
        );
    }
    text
}

/// A duration in words.
fn format_duration(seconds: f64) -> String {
    let seconds = seconds.round();
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => {
            let minutes = (s / 60.0).floor();
            let rest = s - 60.0 * minutes;
            if rest < 1.0 || s > 1_200.0 {
                format!("{:.0} min", s / 60.0)
            } else {
                format!("{minutes:.0}:{rest:02.0} min")
            }
        }
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::format_duration;

    #[test]
    fn a_time_is_told_as_people_say_it() {
        for (seconds, said) in
            [(9.6, "10 s"), (240.0, "4 min"), (250.0, "4:10 min"), (1_800.0, "30 min"), (14_400.0, "4.0 h")]
        {
            assert_eq!(format_duration(seconds), said);
        }
    }
}
