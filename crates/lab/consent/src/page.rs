//! The page that is read before anything is switched: what would be done, what it takes, and what ends it.

use super::design::LiveDesign;
use super::rights::Right;
use super::switches::Switch;
use std::fmt::Write as _;
use std::path::PathBuf;
use toll_execution::class_meter::ClassSource;
use toll_execution::live::UsersView;
use toll_guard::control::Vetoes;
use toll_guard::limits::{Baseline, Limits};
use toll_guard::watch::{GUARD_CONNECTIONS, PROBES_PER_S};
use toll_sys::count_format::format_count;
use toll_sys::number_format::{format_duration_s, format_megabytes};

/// Classes that are named, and how much of each name.
const SHOWN_CLASSES: usize = 5;
const TITLE_CHARS: usize = 80;
/// toll's on the server: for switching, and for counters, which holds the lock of one run at a time, too.
const OWN_CONNECTIONS: usize = 2;

/// A treatment's changes at one server.
#[derive(Debug)]
pub struct TreatmentPlan {
    pub name: String,
    pub switches: Vec<Switch>,
    /// Its artefact is a log of the server's.
    pub is_written_by_server: bool,
    /// Sessions copy it when they connect, and keep it.
    pub stays_with_sessions: bool,
}

/// What the page says of one server.
#[derive(Debug)]
pub struct ServerPlan<'a> {
    pub address: String,
    pub version: String,
    pub treatments: Vec<TreatmentPlan>,
    /// The data directory, where the server writes the logs of treatments; absent if it writes none.
    pub log_dir: Option<String>,
    pub rights: &'a [Right],
    pub baseline: &'a Baseline,
    pub limits: &'a Limits,
    pub space: &'a [PathBuf],
    pub sees_host: bool,
}

/// Everything that the page says.
#[derive(Debug)]
pub struct LivePage<'a> {
    /// One, or two between which treatments cross over.
    pub servers: Vec<ServerPlan<'a>>,
    /// What has to be typed to begin.
    pub confirmation: &'a str,
    pub design: &'a LiveDesign,
    pub run_dir: &'a str,
    /// Replicas whose lag is watched.
    pub replicas: &'a [String],
    pub vetoes: &'a Vetoes,
    pub users: &'a UsersView,
    /// Title of the outcome that verdicts are drawn from.
    pub judged: &'a str,
    pub mde_pct: Option<f64>,
    pub flag_file: Option<&'a str>,
}

impl LivePage<'_> {
    /// At most 100 columns.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "Plan: nothing was switched. The server was looked at for {} s.\n", self.pilot_s())?;
        for server in &self.servers {
            writeln!(out, "Server     {} ({})", server.address, server.version)?;
        }
        writeln!(out, "Load       none is added: the server's own traffic is measured")?;
        let log_dirs: Vec<&str> =
            self.servers.iter().filter_map(|server| server.log_dir.as_deref()).collect();
        match log_dirs.first() {
            None => {
                writeln!(out, "Created    nothing: no schema, table, account, or file in the data directory")?
            }
            Some(dir) => {
                writeln!(out, "Created    no schema, table or account; in each window one log file in")?;
                writeln!(out, "           {dir}, removed after it")?;
            }
        }
        for server in &self.servers {
            self.write_treatments(server, out)?;
        }
        self.write_exposure(out)?;
        self.write_outcomes(out)?;
        for server in &self.servers {
            self.write_rights(server, out)?;
        }
        for server in &self.servers {
            self.write_breaker(server, out)?;
        }
        self.write_vetoes(out)?;
        writeln!(out, "\nIf all fails")?;
        writeln!(out, "  toll and its guard watch each other; either switches off if the other dies.")?;
        writeln!(out, "  After a crash of both: `toll clean`. By hand: the lines after \"off\" above.")?;
        writeln!(out, "\nTo begin: the same command with --execute --reason 'WHY'.")?;
        writeln!(out, "It asks for `{}`, or takes it from --confirm.", self.confirmation)
    }

    fn pilot_s(&self) -> u64 {
        self.servers.iter().map(|server| server.baseline.seconds).max().unwrap_or(0)
    }

    fn crosses_over(&self) -> bool {
        self.servers.len() > 1
    }

    /// Of several servers: which.
    fn at(&self, server: &ServerPlan<'_>) -> String {
        if self.crosses_over() { format!(" at {}", server.address) } else { String::new() }
    }

    fn write_treatments(&self, server: &ServerPlan<'_>, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nSwitched{}", self.at(server))?;
        for treatment in &server.treatments {
            writeln!(out, "  {}", treatment.name)?;
            for switch in &treatment.switches {
                writeln!(out, "    on   {}", switch.on)?;
                writeln!(out, "    off  {}", switch.off)?;
            }
            if treatment.stays_with_sessions {
                writeln!(
                    out,
                    "    Reaches sessions that connect while it is on. They keep it until they disconnect:"
                )?;
                writeln!(out, "    where this log is on by itself, all their queries are in it until then.")?;
            }
            let place = server.log_dir.as_deref().filter(|_| treatment.is_written_by_server);
            if treatment.switches.iter().any(|switch| switch.on.contains("{artefact}")) {
                let place = place.unwrap_or(self.run_dir);
                writeln!(out, "    {{artefact}}: a file in {place}, removed after each window")?;
            }
        }
        Ok(())
    }

    fn write_exposure(&self, out: &mut String) -> std::fmt::Result {
        let design = self.design;
        let ramp: Vec<String> = design.ramp_s.iter().map(|s| format!("{s}")).collect();
        let ramp = match ramp.is_empty() {
            true => String::new(),
            false => format!("; the first windows last {} s", ramp.join(", ")),
        };
        writeln!(out, "\nExposure")?;
        let windows = match self.crosses_over() {
            true => "each two windows: on at one server, then at the other;\n  the order is drawn;",
            false => "each a window with and one without, in an order that is drawn;",
        };
        writeln!(out, "  {} blocks in {}, {windows}", design.blocks, format_duration_s(design.duration_s()))?;
        let limit = format_duration_s(design.time_s);
        writeln!(
            out,
            "  each fifth block switches nothing (sham). No block begins that would end after {limit}."
        )?;
        let each_server = if self.crosses_over() { " at each server" } else { "" };
        writeln!(
            out,
            "  On{each_server}: {} in all for each treatment, at most {:.0} s at a time{ramp}.",
            format_duration_s(design.on_s()),
            design.longest_on_s()
        )?;
        let (more, tap) = match self.users.source {
            Some(ClassSource::Tap(_)) => (0, ", a tap on the sockets"),
            Some(ClassSource::Counters(_)) => (1, ""),
            None => (0, ""),
        };
        writeln!(
            out,
            "  toll's own: {PROBES_PER_S} probe queries and 11 status queries a second, {} connections{tap}",
            GUARD_CONNECTIONS + OWN_CONNECTIONS + more + self.servers.len() - 1
        )?;
        if self.crosses_over() {
            writeln!(out, "  at each of the two servers")?;
        }
        writeln!(out, "  Written: to {}", self.run_dir)?;
        let mut space: Vec<&PathBuf> = self.servers.iter().flat_map(|server| server.space).collect();
        space.dedup();
        for path in space {
            writeln!(out, "  Free space is watched in {}", path.display())?;
        }
        Ok(())
    }

    /// What is measured, how small an effect can be found, and what cannot be seen from here.
    fn write_outcomes(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nMeasured")?;
        writeln!(out, "  Verdicts: {}", self.judged)?;
        if let Some(source) = self.users.source.as_ref() {
            let traffic = &self.users.traffic;
            writeln!(out, "  Users' response times: {}, in all windows", source.describe())?;
            writeln!(
                out,
                "  {} of {:.0} queries a second; the most frequent:",
                format_count(traffic.classes.len() as u64, "class"),
                traffic.queries_per_s
            )?;
            for class in traffic.classes.iter().take(SHOWN_CLASSES) {
                let title: String = class.title.chars().take(TITLE_CHARS).collect();
                writeln!(out, "    {:>5.1}%  {title}", 100.0 * class.weight)?;
            }
        }
        for what in &self.users.not_seen {
            writeln!(out, "  Not seen: {what}")?;
        }
        match self.mde_pct {
            Some(pct) => writeln!(
                out,
                "  Found in 8 of 10 such runs (from {} s with nothing on): a change of {pct:.1}% or more",
                self.pilot_s()
            ),
            None => writeln!(out, "  The smallest change that such a run finds is not known beforehand"),
        }
    }

    fn write_rights(&self, server: &ServerPlan<'_>, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nRights{}", self.at(server))?;
        for right in server.rights {
            match right.is_there {
                true => writeln!(out, "  there    {}", right.what_for)?,
                false => writeln!(out, "  missing  {}: {}", right.what_for, right.grant)?,
            }
        }
        Ok(())
    }

    /// Each limit beside what this server does by itself.
    fn write_breaker(&self, server: &ServerPlan<'_>, out: &mut String) -> std::fmt::Result {
        let (usual, limit) = (server.baseline, server.limits);
        let ms = |us: f64| format!("{:.1} ms", us / 1e3);
        let megabytes = |bytes: u64| format!("{} MB", format_megabytes(bytes as f64));
        let stalls =
            |pct: Option<f64>| pct.map_or_else(|| "none: it is full".to_owned(), |pct| format!("{pct:.0}%"));
        let mut rows = vec![
            ("2 probe queries in a row over", format!("p99 {}", ms(usual.probe_p99_us)), ms(limit.probe_us)),
            (
                "1 probe query without an answer for",
                String::new(),
                ms(limit.probe_us.max(limit.probe_timeout_us)),
            ),
            ("p90 of the probe queries of 2 s", ms(usual.probe_p90_us), ms(limit.probe_p90_us)),
            (
                "Threads_running for half a second",
                format!("p99 {}", usual.threads_running_p99),
                limit.threads_running.to_string(),
            ),
            (
                "a statement of toll's without an answer",
                String::new(),
                format!("{} s", limit.own_statement_s),
            ),
            (
                "free space",
                usual.free_pct.map(|pct| format!("{pct:.0}%")).unwrap_or_default(),
                format!("{} or {:.0}%", megabytes(limit.free_bytes), limit.free_pct),
            ),
            ("bytes that the method writes", String::new(), megabytes(limit.written_bytes)),
            ("the method is on at a stretch for", String::new(), format!("{:.1} s", limit.on_s)),
        ];
        let of_host = [
            (
                "tasks wait for a CPU, of 2 s",
                format!("up to {:.0}%", usual.cpu_stalled.most),
                stalls(limit.cpu_stalled_pct),
            ),
            (
                "all tasks wait for a disk, of 2 s",
                format!("up to {:.0}%", usual.io_stalled.most),
                stalls(limit.io_stalled_pct),
            ),
            (
                "pages back from swap in a second",
                usual.swap_in_per_s.to_string(),
                limit.swap_in_per_s.to_string(),
            ),
        ];
        if server.sees_host {
            rows.extend(of_host);
        }
        let errors: Vec<(String, String, String)> = limit
            .errors_per_s
            .iter()
            .map(|(name, most)| {
                let usual = usual.errors_per_s.get(name).map_or(0.0, |(mean, _)| *mean);
                (format!("{name} in a second"), format!("{usual:.1}"), most.to_string())
            })
            .collect();
        rows.extend(errors.iter().map(|(what, usual, most)| (what.as_str(), usual.clone(), most.clone())));
        writeln!(out, "\nOff within 2 s, for good, once one of these is passed (now, limit)")?;
        if self.crosses_over() {
            writeln!(out, " {}", self.at(server))?;
        }
        for (what, usual, most) in rows {
            writeln!(out, "  {what:<37} {usual:>14} {most:>16}")?;
        }
        Ok(())
    }

    /// What ends the run wherever it is measured.
    fn write_vetoes(&self, out: &mut String) -> std::fmt::Result {
        let lag_s = self.servers.first().map_or(0.0, |server| server.limits.lag_s);
        for replica in self.replicas {
            writeln!(out, "  {:<37} {:>14} {:>14} s", format!("lag of {replica}, if it grows"), "", lag_s)?;
        }
        if let Some(path) = self.flag_file {
            writeln!(out, "  while the file {path} is there")?;
        }
        if let Some(path) = &self.vetoes.control {
            writeln!(out, "  once `panic` is written to the socket {}", path.display())?;
        }
        if let Some(url) = &self.vetoes.url {
            writeln!(out, "  once {url} answers anything but 200")?;
        }
        Ok(())
    }
}
