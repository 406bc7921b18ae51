//! Resolution of a variant: from the arm as written to the arm in the plan.

use super::TimeSettings;
use crate::artefacts::{self, Shape, Writer};
use crate::placeholders::{Definitions, PER_TRIAL_PLACEHOLDERS, PlaceholderValues};
use crate::scenario::{self, CountLimit, OnExit};
use std::collections::BTreeMap;
use toll_record::{Arm, Counted, Meter, Needs, Process, Setting, Treatment, Window, Workload};
use toll_sys::redact;
use toll_sys::units::Percent;

/// The arm with all defaults of the scenario and the profile filled in.
///
/// `cpus`: CPUs that programs may use. An arm is marked unavailable, with the reason, if its texts cannot be expanded for this server.
pub fn resolve_arm(
    written: &scenario::Arm,
    workload: Workload,
    times: &TimeSettings,
    definitions: &Definitions,
    cpus: f64,
) -> Arm {
    let split = |command: &Option<String>| -> anyhow::Result<Vec<String>> {
        Ok(command.as_deref().map(|text| definitions.split_command(text)).transpose()?.unwrap_or_default())
    };
    let resolved = resolve_treatment(written, definitions)
        .and_then(|treatment| Ok((treatment, split(&written.count_with)?, split(&written.check)?)));
    let (treatment, count_with, check, unavailable) = match resolved {
        Ok((treatment, count_with, check)) => (treatment, count_with, check, None),
        Err(error) => (Treatment::default(), Vec::new(), Vec::new(), Some(format!("{error:#}"))),
    };
    let has_load = workload.driver != "none";
    let holds_none_back = || {
        let is_asked = workload.delay_pct.is_some() && workload.driver != "toll";
        is_asked.then(|| format!("{} cannot delay replies: leave --driver out", workload.driver))
    };
    let unavailable = unavailable.or_else(holds_none_back);
    let default_meter = if has_load { Meter::Driver } else { Meter::None };
    Arm {
        name: written.name.clone(),
        title: written.title.clone(),
        role: written.role,
        varied: written.varied.clone(),
        command: String::new(),
        workload,
        meter: written.meter.clone().unwrap_or(default_meter),
        window: resolve_window(written, times),
        settle_s: resolve_settle_s(written, times),
        against: written.against.clone(),
        judged_by: written.judged_by.clone(),
        curve: written.curve.clone(),
        treatment,
        artefact: written.artefact,
        count_with,
        in_memory: written.in_memory,
        selects: written.selects,
        needs: Needs {
            programs: written.requires.clone(),
            root: written.requires_root || !written.sysctl.0.is_empty(),
            variables: written.requires_variable.clone(),
            rig: Vec::new(),
            check,
        },
        server_options: BTreeMap::new(),
        unavailable,
        burn_share: written.burn.map(|Percent(percent)| percent / 100.0 * cpus),
    }
}

/// The arm's window. A command that is still to be rehearsed gets a window of the usual length.
fn resolve_window(written: &scenario::Arm, times: &TimeSettings) -> Window {
    let at_most_s = written.at_most.map_or(times.max_done_window_s(), |at_most| at_most.0);
    match (written.until, written.ends) {
        (Some(until), _) => {
            let (of, count) = match until {
                CountLimit::Statements(count) => (Counted::Statements, count),
                CountLimit::Events(count) => (Counted::Events, count),
                CountLimit::Packets(count) => (Counted::Packets, count),
            };
            Window::Count { of, count, at_most_s }
        }
        (None, OnExit::ClosesWindow) => Window::Done { at_most_s },
        (None, _) => Window::Time { s: times.draft_window_s() },
    }
}

/// Seconds to settle: the flag's value for every arm, else the longer of the arm's and the profile's.
fn resolve_settle_s(written: &scenario::Arm, times: &TimeSettings) -> f64 {
    let own = written.settle.filter(|_| !times.settle_is_explicit);
    own.map_or(times.settle_s, |own| own.0.max(times.settle_s))
}

fn resolve_treatment(written: &scenario::Arm, definitions: &Definitions) -> anyhow::Result<Treatment> {
    Ok(Treatment {
        settings: resolve_settings(written, definitions)?,
        updates: written.update.clone(),
        on: written.on.clone(),
        off: written.off.clone(),
        processes: resolve_processes(written, definitions)?,
        again: written.ends == OnExit::Again,
        count: written.count.clone(),
        fresh_sessions: written.fresh_sessions,
        remote_port: written.remote_port,
        far_rate: written.far_rate.clone(),
        sysctl: written.sysctl.0.clone(),
    })
}

/// Variables in the order in which they are set. They are restored in reverse order.
fn resolve_settings(written: &scenario::Arm, definitions: &Definitions) -> anyhow::Result<Vec<Setting>> {
    let needed = written.set.0.iter().map(|setting| (setting, false));
    let optional = written.set_if_known.0.iter().map(|setting| (setting, true));
    let mut settings = needed
        .chain(optional)
        .map(|((name, value), if_known)| {
            Ok(Setting { name: name.clone(), value: definitions.expand(value)?, if_known })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    settings.sort_by_key(|setting| SettingOrder::of_variable(&setting.name));
    Ok(settings)
}

/// Step at which a variable is set, whatever the order in the file.
///
/// A log's path is set before the variables that fill it. Otherwise a log that is already on, and somebody's,
/// would receive entries meant for toll's. The variable that switches a log on comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SettingOrder {
    LogPath,
    Other,
    Enable,
}

impl SettingOrder {
    fn of_variable(variable: &str) -> Self {
        let ends = |endings: &[&str]| endings.iter().any(|ending| variable.ends_with(ending));
        if ends(&["_file", "_file_path"]) {
            Self::LogPath
        } else if ends(&["slow_query_log", "general_log", "_logging"]) {
            Self::Enable
        } else {
            Self::Other
        }
    }
}

fn resolve_processes(written: &scenario::Arm, definitions: &Definitions) -> anyhow::Result<Vec<Process>> {
    let mut processes: Vec<Process> = Vec::new();
    let mut named: BTreeMap<String, u32> = BTreeMap::new();
    for member in written.process_specs() {
        for copy in 1..=member.copies.unwrap_or(1) {
            let mut definitions = definitions.clone();
            definitions.define("copy", copy.to_string());
            let stages = member
                .commands()
                .map(|command| definitions.split_command(command))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let name = member.name.clone().unwrap_or_else(|| program_name(&stages));
            let count = named.entry(name.clone()).or_default();
            *count += 1;
            processes.push(Process {
                name: if *count == 1 { name } else { format!("{name} {count}") },
                stages,
                stdout: member.stdout.as_deref().map(|path| definitions.expand(path)).transpose()?,
                ready: member.ready.clone(),
                stop: member.stop.unwrap_or_default(),
                probe: member.probe,
                after_s: member.after.0 + member.stagger.0 * f64::from(copy - 1),
                env: written.env.clone(),
                background: member.background,
                far: member.far,
                drain_s: member.drain.0,
                keep_stdout: member.keep_stdout,
            });
        }
    }
    Ok(processes)
}

fn program_name(stages: &[Vec<String>]) -> String {
    let word = stages.first().and_then(|words| words.first()).map_or("process", String::as_str);
    word.rsplit('/').next().unwrap_or(word).trim_matches(['{', '}']).to_owned()
}

/// The commands or settings in one line, as a user would write them. `{artefact}` and the like stay open.
pub fn format_treatment(arm: &Arm, placeholders: &PlaceholderValues) -> String {
    let mut open = placeholders.clone();
    open.set("toll", "toll".into());
    for name in PER_TRIAL_PLACEHOLDERS {
        open.set(name, name.to_uppercase());
    }
    let put_in = |text: &str| open.fill_in(text).unwrap_or_else(|_| text.to_owned());
    let treatment = &arm.treatment;
    let mut texts: Vec<String> = Vec::new();
    let settings: Vec<String> = (treatment.settings.iter())
        .map(|setting| format!("{}={}", setting.name, put_in(&setting.value)))
        .chain(treatment.on.iter().map(|sql| redact::redact_text(sql)))
        .collect();
    if !settings.is_empty() {
        texts.push(format!("SET GLOBAL {}", settings.join(", ")));
    }
    if !treatment.sysctl.is_empty() {
        let settings = treatment.sysctl.iter().map(|(name, value)| format!("{name}={value}"));
        texts.push(format!("sysctl -w {}", settings.collect::<Vec<_>>().join(" ")));
    }
    let mut commands: Vec<(String, usize)> = Vec::new();
    for process in &treatment.processes {
        let stages = process.stages.iter().map(|words| {
            let words: Vec<String> = words.iter().map(|word| put_in(word)).collect();
            shell_words::join(redact::redact_words(&words))
        });
        let mut text = stages.collect::<Vec<_>>().join(" | ");
        if let Some(stdout) = &process.stdout {
            text.push_str(&format!(" > {}", put_in(stdout)));
        }
        match commands.last_mut() {
            Some((last, times)) if *last == text => *times += 1,
            _ => commands.push((text, 1)),
        }
    }
    texts.extend(commands.into_iter().map(|(text, times)| match times {
        1 => text,
        n => format!("{n} times at once: {text}"),
    }));
    texts.join("; ")
}

/// True if the server writes the arm's artefact.
pub fn is_written_by_server(arm: &Arm) -> bool {
    let row = arm.artefact.map(artefacts::spec_of);
    row.is_some_and(|row| row.writer == Writer::Server && row.shape != Shape::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Preset, Scenario};

    fn arm(text: &str) -> Arm {
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\nbaseline = \"it\"\nprimary = \"qps\"\n[workload]\n\
             [profile.a]\nrounds = 1\nwindow = \"2s\"\nsettle = \"0s\"\n\
             [define]\ntool = \"cat 'a b'\"\n[[arm]]\nname = \"it\"\ntitle = \"it\"\n{text}\n"
        );
        let scenario = Scenario::parse(&text).unwrap();
        let resolved =
            crate::plan::ResolvedScenario::new(scenario, &crate::plan::RunOverrides::default()).unwrap();
        let definitions = Definitions::new(&resolved.scenario.define, "mariadb");
        let written = &resolved.arms[0];
        resolve_arm(written, resolved.arm_workload(written), &resolved.times, &definitions, 4.0)
    }

    #[test]
    fn a_set_of_processes_has_a_name_a_start_and_a_number_for_each_copy() {
        let arm = arm(
            "process = [{ command = \"{tool} {copy} {port}\", copies = 3, after = \"1s\", stagger = \"500ms\" },
                        { name = \"pipe\", stages = [\"echo x\", \"cat\"], stdout = \"{artefact}\" }]
             artefact = \"bytes\"\nends = \"closes-window\"\nat_most = \"1m\"",
        );
        let processes = &arm.treatment.processes;
        let names: Vec<_> = processes.iter().map(|p| (p.name.as_str(), p.after_s)).collect();
        assert_eq!(names, [("cat", 1.0), ("cat 2", 1.5), ("cat 3", 2.0), ("pipe", 0.0)]);
        assert_eq!(processes[2].stages, [["cat", "a b", "3", "{port}"]]);
        assert_eq!(arm.window, Window::Done { at_most_s: 60.0 });
        let mut placeholders = PlaceholderValues::default();
        placeholders.set("port", "7".into());
        assert!(
            format_treatment(&arm, &placeholders).ends_with("cat 'a b' 3 7; echo x | cat > ARTEFACT"),
            "{}",
            format_treatment(&arm, &placeholders)
        );
    }

    #[test]
    fn a_log_gets_its_file_before_anything_that_fills_it_and_is_switched_on_last() {
        let arm = arm(
            "artefact = \"slow-log\"\nset = { slow_query_log = \"1\", long_query_time = \"0\", log_output = \"FILE\", \
             slow_query_log_file = \"{artefact}\" }",
        );
        let names: Vec<_> = arm.treatment.settings.iter().map(|setting| setting.name.as_str()).collect();
        // Others in the order of the file.
        assert_eq!(names, ["slow_query_log_file", "long_query_time", "log_output", "slow_query_log"]);
        assert_eq!(SettingOrder::of_variable("server_audit_logging"), SettingOrder::Enable);
    }

    #[test]
    fn an_arm_settles_for_as_long_as_it_needs_unless_a_flag_says_otherwise() {
        assert_eq!(arm("command = \"cat\"\nsettle = \"3s\"").settle_s, 3.0);
        assert_eq!(arm("command = \"cat\"").settle_s, 0.0);
        let scenario = Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        let overrides =
            crate::plan::RunOverrides { settle: Some(toll_sys::units::Seconds(0.2)), ..Default::default() };
        let resolved = crate::plan::ResolvedScenario::new(scenario, &overrides).unwrap();
        let general = resolved.arms.iter().find(|arm| arm.name == "general-log").unwrap();
        assert_eq!(resolve_settle_s(general, &resolved.times), 0.2);
    }

    #[test]
    fn a_window_may_end_by_count() {
        let arm = arm("command = \"cat\"\nuntil = { events = 500 }\nat_most = \"9s\"");
        assert_eq!(arm.window, Window::Count { of: Counted::Events, count: 500, at_most_s: 9.0 });
        assert_eq!(arm.meter, Meter::Driver);
    }
}
