//! `toll cost -- COMMAND`: what does this command cost a busy host?

use super::report::Format;
use super::server_choice::ServerArgs;
use crate::plan::Wishes;
use crate::run::{self, Asked};
use crate::scenario::{Scenario, Seconds};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Filled in: {port} {socket} {datadir} {pid} {artefact} {duration_s}
#[derive(Debug, Args)]
pub struct Cost {
    /// What keeps the server busy
    #[arg(long, default_value = "read-only")]
    workload: String,
    /// Rounds; an interval at 95% needs at least 6
    #[arg(long, default_value_t = 12)]
    rounds: u32,
    /// Length of a window
    #[arg(long, default_value = "2s")]
    window: Seconds,
    /// Time between starting the command and its window
    #[arg(long, default_value = "500ms")]
    settle: Seconds,
    /// Rows in each of the 8 tables
    #[arg(long, default_value_t = 10_000)]
    rows: u64,
    /// Connections of the load
    #[arg(long, default_value_t = 8)]
    threads: u32,
    #[command(flatten)]
    server: ServerArgs,
    /// What makes the load
    #[arg(long, default_value = "toll", value_parser = ["toll", "sysbench"])]
    driver: String,
    /// Seed of order, jitter and draws [default: from the clock, and written down]
    #[arg(long)]
    seed: Option<u64>,
    /// Directory of the run [default: run-cost-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Form of the report on standard output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Everything but the command itself; `toml` quotes the rest.
const TEMPLATE: &str = r#"
name = "cost"
question = "What does this command cost a busy host?"
baseline = "none"
primary = "latency_us_mean"

[profile.cost]
rounds = 12
window = "2s"
settle = "500ms"
pilot = "3s"

[[arm]]
name = "none"
title = "load alone"
role = "baseline"

[[arm]]
name = "none2"
title = "load alone, again (A/A)"
role = "aa"
"#;

pub fn run(arguments: Cost) -> anyhow::Result<ExitCode> {
    let text = scenario_text(&arguments);
    let scenario = Scenario::parse(&text)?;
    let wishes = Wishes {
        driver: Some(arguments.driver),
        rounds: Some(arguments.rounds),
        window: Some(arguments.window),
        settle: Some(arguments.settle),
        rows: Some(arguments.rows),
        threads: Some(arguments.threads),
        seed: arguments.seed,
        ..Wishes::default()
    };
    let asked = Asked {
        scenario,
        text,
        wishes,
        server: arguments.server.resolve()?,
        out: arguments.out,
        keep_artefacts: false,
        command: std::env::args().collect(),
    };
    super::run::finish(run::run(asked)?, arguments.format, &[])
}

fn scenario_text(arguments: &Cost) -> String {
    let command = shell_words::join(&arguments.command);
    let mut arm = toml::Table::new();
    let mut put = |key: &str, value: &str| arm.insert(key.into(), value.into());
    put("name", "command");
    put("title", &command);
    put("kind", "command");
    // Quoting must not hide placeholders: they are filled in before the words are split.
    put("command", &command);
    if command.contains("{artefact}") {
        put("artefact", "bytes");
    }
    let mut workload = toml::Table::new();
    workload.insert("profile".into(), arguments.workload.as_str().into());
    let mut rest = toml::Table::new();
    rest.insert("workload".into(), workload.into());
    rest.insert("arm".into(), toml::Value::Array(vec![arm.into()]));
    let (head, arms) = TEMPLATE.split_once("\n[profile.cost]").unwrap_or((TEMPLATE, ""));
    format!("{head}\n[profile.cost]{arms}\n{}", toml::to_string(&rest).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        cost: Cost,
    }

    #[test]
    fn any_command_becomes_an_arm_word_for_word() {
        let words = ["x", "--", "tcpdump", "-w", "{artefact}", "port {port}", "it's \"quoted\""];
        let cost = Wrapper::parse_from(words).cost;
        let scenario = Scenario::parse(&scenario_text(&cost)).unwrap();
        let arm = scenario.arms.last().unwrap();
        let mut fill = crate::treatment::Fill::default();
        fill.set("artefact", "/x/a.bin".into());
        fill.set("port", "33002".into());
        let filled = crate::treatment::words_of(arm.command.as_deref().unwrap(), &fill).unwrap();
        assert_eq!(filled, ["tcpdump", "-w", "/x/a.bin", "port 33002", "it's \"quoted\""]);
        assert_eq!(scenario.workload.profile.as_deref(), Some("read-only"));
    }
}
