//! Response times from a `toll capture` on the server's sockets: a process of its own, which prints those of each half second.

use super::{STRETCH_US, SeenClass, SeenStretch, Taker};
use crate::end_child::end_child;
use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_digest::response_times::{self, ClassTimes};
use toll_journal::{Journal, UndoId};
use toll_sys::program::OWN_PROGRAM;
use toll_sys::{child_process, clock};

/// Classes of a stretch: beyond these none has a hundredth of the queries.
const CLASSES: &str = "500";
/// To read the server's program and place the probes.
const READY_WITHIN: Duration = Duration::from_secs(15);
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Of what it says where it fails.
const SAID_BYTES: u64 = 4 << 10;

/// The command that taps a server.
pub fn command(server_pid: i32) -> Vec<String> {
    let every = format!("{}ms", STRETCH_US / 1_000);
    let words =
        ["capture", "--tap", "sockets", "--digest", "--json", "--times-alone", "--every", &every, "--limit"];
    let own = std::iter::once(OWN_PROGRAM).chain(words).map(str::to_owned);
    own.chain([CLASSES.to_owned(), "--server-pid".to_owned(), server_pid.to_string()]).collect()
}

#[derive(Debug)]
pub struct TapProcess {
    child: Child,
    undo: Option<UndoId>,
}

pub fn start(
    command: &[String],
    journal: Option<&Journal>,
    own: Vec<String>,
    mut taker: Taker,
) -> anyhow::Result<(JoinHandle<()>, TapProcess)> {
    let (program, words) = command.split_first().context("the tap needs a program")?;
    let mut command: Command = child_process::clean_env_command(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, undo) = match journal {
        Some(journal) => {
            let (child, undo) = journal.spawn(
                &mut command,
                "tap on the server's sockets",
                Some(Signal::SIGTERM),
                STOP_WITHIN,
            )?;
            (child, Some(undo))
        }
        None => (command.spawn().context("cannot start the tap")?, None),
    };
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        bail!("the tap has no pipes")
    };
    let process = TapProcess { child, undo };
    let said = std::thread::spawn(move || last_words(stderr));
    let (tell, begun) = channel();
    let reader = std::thread::Builder::new().name("class-tap".into()).spawn(move || {
        let mut lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        // The first line ends a stretch that it did not see from the begin.
        if lines.next().is_some() {
            let _ = tell.send(());
        }
        for line in lines {
            // Its last line is the accounting.
            if let Ok(classes) = response_times::read(&line)
                && let Some(stretch) = to_stretch(classes, &own)
            {
                taker(stretch);
            }
        }
    })?;
    match begun.recv_timeout(READY_WITHIN) {
        Ok(()) => Ok((reader, process)),
        Err(ended) => {
            process.stop(journal)?;
            let said = said.join().unwrap_or_default();
            let why = match ended {
                RecvTimeoutError::Timeout => "it measured nothing within 15 s",
                RecvTimeoutError::Disconnected => said.lines().last().unwrap_or("it ended without a word"),
            };
            bail!("the socket tap cannot be used: {why}")
        }
    }
}

fn last_words(stderr: ChildStderr) -> String {
    let mut stderr = BufReader::new(stderr);
    let mut said = Vec::new();
    let _ = Read::take(&mut stderr, SAID_BYTES).read_to_end(&mut said);
    // A pipe that nobody reads would stop it.
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&said).into_owned()
}

/// `None`: nobody asked anything.
fn to_stretch(classes: Vec<ClassTimes>, own: &[String]) -> Option<SeenStretch> {
    let last_us = classes.iter().map(|class| class.last_ns / 1_000).max().filter(|us| *us > 0)?;
    // Of the wall clock, which the capture goes by.
    let end_us = (last_us / STRETCH_US + 1) * STRETCH_US;
    let of_users = classes.into_iter().filter(|class| is_of_users(&class.fingerprint, own));
    Some(SeenStretch {
        mono_us: clock::mono_of_wall_us(end_us),
        width_us: STRETCH_US,
        classes: of_users
            .map(|class| SeenClass {
                name: class.id,
                title: class.title,
                times: toll_record::ClassTimes { count: class.count, ln_us_sum: class.ln_us_sum },
            })
            .collect(),
    })
}

/// What monitoring and toll itself ask is left out.
fn is_of_users(fingerprint: &str, own: &[String]) -> bool {
    let is_upkeep =
        ["show ", "set ", "administrator command"].iter().any(|word| fingerprint.starts_with(word));
    !is_upkeep && !own.iter().any(|own| own == fingerprint)
}

impl TapProcess {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stop(mut self, journal: Option<&Journal>) -> anyhow::Result<()> {
        end_child(&mut self.child, STOP_WITHIN).context("the tap cannot be ended: see `toll clean`")?;
        match (self.undo, journal) {
            (Some(undo), Some(journal)) => journal.mark_done(undo),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_with_its_half_second_and_has_users_queries_alone() {
        let class = |fingerprint: &str, last_us: u64| ClassTimes {
            id: fingerprint.to_owned(),
            title: String::new(),
            fingerprint: fingerprint.to_owned(),
            count: 3,
            ln_us_sum: 12.0,
            last_ns: last_us * 1_000,
        };
        let half_us = clock::wall_us() / STRETCH_US * STRETCH_US;
        let own = ["select id from t where id = ?".to_owned()];
        let classes = vec![
            class("select a from t", half_us - 200_000),
            class("show global status", half_us - 1),
            class("select id from t where id = ?", half_us - 300_000),
        ];
        let stretch = to_stretch(classes, &own).unwrap();
        let names: Vec<&str> = stretch.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["select a from t"]);
        let ago_us = clock::mono_us() - stretch.mono_us;
        let expected_us = clock::wall_us() - half_us;
        assert!(ago_us.abs_diff(expected_us) < 100_000, "{ago_us} {expected_us}");
        assert_eq!(to_stretch(Vec::new(), &own), None);
    }
}
