//! Validation of subject, data and rig against the requirements of the arms.

use super::check::check_scale;
use super::{Arm, Define, Scenario, Subject, Workload};
use crate::data::Recipe;
use crate::placeholders::SERVER_PLACEHOLDERS;
use crate::rig::{self, RigRequirements};
use anyhow::{Context, bail, ensure};
use toll_record::ArtefactKind;

/// Advice for an arm that needs a server in a scenario without one.
const NO_SERVER: &str = "subject = \"host\" has no server: remove it, or set subject = \"server\"";

impl Scenario {
    pub(super) fn check_requirements(&self) -> anyhow::Result<()> {
        let mut kinds = Vec::new();
        for step in &self.rig {
            let kind = rig::StepKind::by_name(&step.kind).context("in [[rig]]")?;
            kind.resolve_step(step).context("in [[rig]]")?;
            ensure!(
                !kinds.contains(&kind.name),
                "[[rig]] has two steps of kind {:?}: one is enough",
                kind.name
            );
            ensure!(
                self.subject == Subject::Server || !kind.needs_server,
                "[[rig]] kind = {:?} leads to a server: {NO_SERVER}",
                kind.name
            );
            kinds.push(kind.name);
        }
        let profiles = self.profile.values().map(|profile| profile.workload.transport.as_ref());
        let usual: Vec<_> = [self.workload.transport.as_ref()].into_iter().chain(profiles).collect();
        for (arm, usual) in self.arms.iter().flat_map(|arm| usual.iter().map(move |usual| (arm, *usual))) {
            let transport = arm.workload.transport.as_ref().or(usual).map_or("", String::as_str);
            let need = RigRequirements { arm, transport, define: &self.define };
            if let Some(kind) = need.required_kinds().find(|kind| !kinds.contains(&kind.name)) {
                bail!(
                    "arm `{}` needs a step that the rig does not have: add [[rig]] kind = {:?}",
                    arm.name,
                    kind.name
                );
            }
        }
        if let Some(data) = &self.data {
            let recipe = Recipe::by_name(&data.recipe).context("in [data]")?;
            ensure!(
                data.scale.is_none() || recipe.is_scaled,
                "in [data]: `scale` does not apply to the recipe {:?}: set its size with `rows` and `tables`",
                recipe.name
            );
            data.scale.map_or(Ok(()), check_scale).context("in [data]")?;
        }
        if self.subject == Subject::Host { self.check_without_server() } else { Ok(()) }
    }

    fn check_without_server(&self) -> anyhow::Result<()> {
        ensure!(self.workload.has_no_load(), "[workload] is a load on a server: {NO_SERVER}");
        ensure!(self.server.options.is_empty(), "[server] is for a server: {NO_SERVER}");
        ensure!(self.data.is_none(), "[data] is for a server: {NO_SERVER}");
        ensure!(self.sweep.is_none(), "[sweep] is of loads on a server: {NO_SERVER}");
        for (name, value) in &self.define {
            if matches!(value, Define::ByFlavour(_)) {
                bail!("[define.{name}] differs by server: {NO_SERVER}");
            }
        }
        for (name, profile) in &self.profile {
            let of_server = profile.rows.or(profile.table_rows).is_some()
                || profile.scale.is_some()
                || profile.buffer_pool.is_some()
                || profile.workload != Workload::default();
            ensure!(!of_server, "profile `{name}` gives rows, a scale, a buffer pool or a load: {NO_SERVER}");
        }
        for arm in &self.arms {
            arm.check_without_server(self).with_context(|| format!("arm `{}`", arm.name))?;
        }
        Ok(())
    }
}

impl Workload {
    /// True if no load is set, or if it is `none`.
    fn has_no_load(&self) -> bool {
        let silent = Self { driver: None, ..self.clone() } == Self::default();
        silent && self.driver.as_ref().is_none_or(|driver| driver == "none")
    }
}

impl Arm {
    fn check_without_server(&self, scenario: &Scenario) -> anyhow::Result<()> {
        ensure!(self.workload.has_no_load(), "its `workload` is a load on a server: {NO_SERVER}");
        ensure!(self.server.options.is_empty(), "its `server` is for a server: {NO_SERVER}");
        let counted = self.artefact == Some(ArtefactKind::Server);
        for (asks, what) in [
            (self.has_statements(), "its statements are for a server"),
            (self.meter == Some(toll_record::Meter::Server), "its meter is the server's"),
            (counted, "its artefact is counted by a server"),
            (self.fresh_sessions, "`fresh_sessions` are a load's"),
            (!self.requires_variable.is_empty(), "`requires_variable` needs a server"),
        ] {
            ensure!(!asks, "{what}: {NO_SERVER}");
        }
        let need = RigRequirements { arm: self, transport: "", define: &scenario.define };
        if let Some(name) = SERVER_PLACEHOLDERS.iter().find(|name| need.mentions_any(&[name])) {
            bail!("{{{name}}} is a server's: {NO_SERVER}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario about `subject` with `head` before its tables and `arm` in its second arm.
    fn scenario(subject: &str, head: &str, arm: &str) -> Result<Scenario, String> {
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\nsubject = \"{subject}\"\nbaseline = \"none\"\n\
             primary = \"elapsed_s\"\n{head}\n[profile.a]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\n\
             [[arm]]\nname = \"none\"\ntitle = \"nothing\"\nrole = \"baseline\"\n\
             [[arm]]\nname = \"it\"\ntitle = \"it\"\n{arm}\n"
        );
        Scenario::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_scenario_about_the_host_asks_for_nothing_of_a_servers() {
        let runs = "command = \"gzip -c /bin/sh\"";
        assert!(scenario("host", "", runs).is_ok());
        for (head, arm, expected) in [
            ("workload = { threads = 8 }", runs, "[workload] is a load"),
            ("workload = { driver = \"toll\" }", runs, "[workload] is a load"),
            ("data = { recipe = \"sbtest\" }", runs, "[data] is for a server"),
            ("server = { options = { any = { log_bin = \"x\" } } }", runs, "[server] is for a server"),
            ("define = { x = { mysql = \"y\" } }", runs, "[define.x] differs by server"),
            ("rig = [{ kind = \"ssh\" }]", runs, "leads to a server"),
            ("", "on = [\"DO 1\"]", "statements are for a server"),
            ("", "command = \"nc {socket}\"", "{socket} is a server's"),
            ("define = { to = \"-p {port}\" }", "command = \"nc {to}\"", "{port} is a"),
            ("", &format!("{runs}\nworkload = {{ rate = 9.0 }}"), "its `workload` is a load"),
            ("", &format!("{runs}\nmeter = \"server\""), "its meter is the server's"),
            ("", &format!("{runs}\nserver = {{ options = {{ any = {{ x = \"y\" }} }} }}"), "its `server`"),
        ] {
            let said = scenario("host", head, arm).expect_err(&format!("{head} {arm} was accepted"));
            assert!(said.contains(expected) && said.contains("has no server: remove it"), "{said}");
            assert!(scenario("server", head, arm).is_ok(), "{head} {arm}");
        }
    }

    #[test]
    fn the_load_of_a_profile_is_one_on_a_server_and_may_need_a_step() {
        let with = |subject: &str, load: &str, head: &str| {
            let text =
                format!("[profile.b]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\nworkload = {load}");
            scenario(subject, head, &format!("command = \"true\"\n{text}")).map(drop)
        };
        let (tls, ssh) = ("{ transport = \"tls\" }", "{ transport = \"ssh-tcp\" }");
        assert!(
            with("host", tls, "")
                .unwrap_err()
                .contains("profile `b` gives rows, a scale, a buffer pool or a load")
        );
        assert_eq!(with("server", tls, ""), Ok(()));
        assert!(with("server", ssh, "").unwrap_err().contains("kind = \"ssh\""));
        assert_eq!(with("server", ssh, "rig = [{ kind = \"ssh\" }]"), Ok(()));
        let refused = with("server", "{ rate = 9.0 }", "").unwrap_err();
        assert!(refused.contains("sets neither driver, rows, delay nor rate"), "{refused}");
        let refused = with("server", "{ transport = \"udp\" }", "").unwrap_err();
        assert!(refused.contains("unknown transport"), "{refused}");
    }

    #[test]
    fn an_arm_finds_the_steps_that_it_needs_in_the_rig() {
        let through = "workload = { transport = \"ssh-tcp\" }";
        let said = scenario("server", "", through).unwrap_err();
        assert!(said.contains("arm `it` needs a step") && said.contains("[[rig]] kind = \"ssh\""), "{said}");
        assert!(scenario("server", "rig = [{ kind = \"ssh\" }]", through).is_ok());
        let link = "command = \"{inside} true\"";
        let inside = "define = { inside = \"ip netns exec {link_send}\" }";
        let said = scenario("host", inside, link).unwrap_err();
        assert!(said.contains("[[rig]] kind = \"link\""), "{said}");
        assert!(scenario("host", &format!("{inside}\nrig = [{{ kind = \"link\" }}]"), link).is_ok());
        let streams = "stages = [\"nc {remote_ip} {remote_port}\"]\nremote_port = 4711\n\
            artefact = \"bytes\"";
        assert!(scenario("host", "", streams).unwrap_err().contains("kind = \"far-end\""));
        for (rig, expected) in [
            ("rig = [{ kind = \"moon\" }]", "\"moon\" is no step of a rig: use far-end, link, packets, ssh"),
            ("rig = [{ kind = \"far-end\", speed = \"9\" }]", "knows no `speed`: it takes rate, burst"),
            ("rig = [{ kind = \"link\" }, { kind = \"link\" }]", "two steps of kind \"link\""),
        ] {
            let said = scenario("host", rig, streams).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
