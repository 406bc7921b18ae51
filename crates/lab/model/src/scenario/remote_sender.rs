//! Reduction of a scenario to its receiving half, if another host sends.

use super::{Arm, Scenario};
use crate::rig::{RECEIVE_ON, RigRequirements};
use anyhow::{Context, bail, ensure};
use toll_record::Role;

impl Scenario {
    /// Reduces the scenario to the one arm of `arms`, without its senders. `device` of this host replaces the
    /// rig's own link.
    ///
    /// Incoming packets are the same for all arms, so that a run has exactly one.
    ///
    /// # Errors
    /// The scenario has no link, not exactly one arm is named, or the arm's captures do not end by
    /// themselves.
    pub fn restrict_to_receiver(&mut self, device: &str, arms: Option<&[String]>) -> anyhow::Result<()> {
        let link = self.rig.iter_mut().find(|step| step.kind == "link");
        let link = link.with_context(|| {
            format!(
                "--receive-on is for scenarios that send packets through a link, such as packet-loss; {} has none",
                self.name
            )
        })?;
        link.keys.insert(RECEIVE_ON.to_owned(), device.to_owned());
        let Some([name]) = arms else {
            bail!(
                "--receive-on needs exactly one variant in --variants, such as http-500: the one that the other host sends"
            );
        };
        let arm = self.arms.iter().find(|arm| arm.name == *name);
        let mut arm = arm.with_context(|| format!("{} has no arm `{name}`", self.name))?.clone();
        let (define, bare) = (&self.define, Arm { process: Vec::new(), ..arm.clone() });
        arm.process.retain(|member| {
            let alone = Arm { process: vec![member.clone()], ..bare.clone() };
            !RigRequirements { arm: &alone, transport: "", define }.mentions_any(&["link_send"])
        });
        let sends = RigRequirements { arm: &arm, transport: "", define }.mentions_any(&["link_send"]);
        ensure!(
            !sends && arm.process_specs().iter().any(|member| !member.background),
            "arm `{name}` is over when its sender is, and that is elsewhere: use an arm whose capture ends by itself"
        );
        (arm.role, arm.against) = (Role::Baseline, None);
        self.baseline.clone_from(name);
        self.arms = vec![arm];
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Preset;

    fn received(scenario: &str, arms: &[&str]) -> Result<Scenario, String> {
        let mut scenario = Preset::named(scenario).unwrap().scenario().unwrap();
        let arms: Vec<String> = arms.iter().map(|arm| (*arm).to_owned()).collect();
        scenario.restrict_to_receiver("eth1", Some(&arms)).map_err(|error| format!("{error:#}"))?;
        Ok(scenario)
    }

    #[test]
    fn a_capture_is_left_without_its_sender_and_is_what_the_run_is_about() {
        let scenario = received("packet-loss", &["flash-500"]).unwrap();
        assert_eq!((scenario.baseline.as_str(), scenario.arms.len()), ("flash-500", 1));
        let [arm] = &scenario.arms[..] else { panic!("one arm") };
        assert_eq!((arm.role, arm.against.as_ref()), (Role::Baseline, None));
        let names: Vec<_> = arm.process.iter().filter_map(|member| member.name.as_deref()).collect();
        assert_eq!(names, ["tcpdump"]);
        let link = scenario.rig.iter().find(|step| step.kind == "link").unwrap();
        assert_eq!(link.keys["receive_on"], "eth1");
    }

    #[test]
    fn what_cannot_be_received_so_is_said() {
        for (scenario, arms, expected) in [
            ("packet-loss", &["http-100", "http-500"][..], "needs exactly one variant in --variants"),
            ("packet-loss", &["http-1"], "has no arm `http-1`"),
            ("zero-loss", &["idle-sized-64-50"], "is over when its sender is"),
            ("tcpdump-impact", &["B"], "such as packet-loss; tcpdump-impact has none"),
        ] {
            let said = received(scenario, arms).unwrap_err();
            assert!(said.contains(expected), "{scenario}: {said}");
        }
    }
}
