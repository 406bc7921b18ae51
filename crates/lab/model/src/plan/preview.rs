//! A run as far as it is known before anything is started: its variants, what they do, and how long it takes.

use super::{ResolvedScenario, apply_sizing, arm};
use crate::placeholders::PlaceholderValues;
use crate::scenario;
use toll_record::Arm;

impl ResolvedScenario {
    /// The arms as they would run on a server of this flavour, on a host with so many CPUs. What only a server or a trial
    /// gives a value stays in braces or capitals.
    pub fn preview_arms(&self, flavour: &str, cpus: f64) -> Vec<Arm> {
        let preview = |written: &scenario::Arm| {
            let mut arm = self.resolve_arm_for(written, flavour, cpus);
            arm.command = arm::format_treatment(&arm, &PlaceholderValues::default());
            arm
        };
        self.arms.iter().map(preview).collect()
    }

    /// Seconds from the pilot to the last window. `None` if the effect to be found decides.
    ///
    /// Capacities that rates are a share of are measured before that.
    pub fn expected_s(&self) -> Option<f64> {
        if self.times.time_s.is_some() {
            return self.times.time_s;
        }
        let (rounds, window_s) = (self.times.rounds?, self.times.window_s?);
        let arms = self.preview_arms("", 1.0);
        Some(self.times.pilot_s + apply_sizing::untried_s(&arms, rounds, window_s, self.times.gap_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RunOverrides;
    use crate::scenario::Preset;
    use toll_sys::units::Seconds;

    fn resolve(scenario: &str, overrides: &RunOverrides) -> ResolvedScenario {
        ResolvedScenario::new(Preset::named(scenario).unwrap().scenario().unwrap(), overrides).unwrap()
    }

    #[test]
    fn a_preview_has_the_commands_of_its_server_and_leaves_open_what_only_a_run_knows() {
        let resolved = resolve("socket-vs-tcp", &RunOverrides::default());
        for (flavour, program) in [("mariadb", "mariadb-dump"), ("mysql", "mysqldump")] {
            let arms = resolved.preview_arms(flavour, 2.0);
            let dump = arms.iter().find(|arm| arm.name == "dump-tcp").unwrap();
            assert!(dump.command.starts_with(program) && dump.unavailable.is_none(), "{}", dump.command);
            assert!(dump.command.contains("{client_defaults}"), "{}", dump.command);
        }
    }

    #[test]
    fn the_time_is_the_one_asked_for_or_that_of_the_rounds() {
        let expected_s = |overrides: RunOverrides| resolve("tcpdump-impact", &overrides).expected_s();
        assert_eq!(expected_s(RunOverrides::default()), Some(1_800.0));
        let asked = RunOverrides { find_pct: Some(2.0), ..RunOverrides::default() };
        assert_eq!(expected_s(asked), None);
        let rounds = |rounds| RunOverrides {
            rounds: Some(rounds),
            window: Some(Seconds(10.0)),
            settle: Some(Seconds(0.0)),
            arms: Some(vec!["none2".into()]),
            ..RunOverrides::default()
        };
        // Two variants for ten seconds each, and some more to switch between them.
        let [one, six] = [1, 6].map(|count| expected_s(rounds(count)).unwrap());
        assert!((20.0..40.0).contains(&one) && (120.0..160.0).contains(&six), "{one} {six}");
    }
}
