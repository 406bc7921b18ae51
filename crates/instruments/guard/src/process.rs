//! The guard: a process of its own that looks ten times a second, and switches a method off by itself.
//!
//! It holds open connections and the path of the undo journal, so nothing has to be found or opened once it is needed. It acts
//! when a condition trips, and when toll dies or falls silent. It never switches anything on.

use super::breaker::{Breaker, Condition, Reading, Trip};
use super::control::Control;
use super::messages::{FromGuard, GuardSetup, Look, OffReport, ServerLogin, ToGuard, receive, send};
use super::metrics::Metrics;
use super::watch::{BEAT_US, LOOK_US, Replica, Watch};
use anyhow::{Context, Result, ensure};
use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use toll_journal::ServerRef;
use toll_mysql::{Connection, Target, Usage};
use toll_probe::ProbeQuery;
use toll_sys::clock;

/// Statements that switch off may take so long each.
const OFF_TIMEOUT: Duration = Duration::from_secs(2);
/// So long it is looked whether the server comes back.
const RECOVERY_US: u64 = 30_000_000;
/// The server is back once all looks of so long were within their limits.
const CALM_US: u64 = 2_000_000;
/// Time between two attempts to switch off what could not be.
const RETRY_US: u64 = 1_000_000;
/// For so long it is tried where toll has gone, too.
const INSIST_US: u64 = 600_000_000;
/// How far back the figures of a beat go.
const LOOK_SPAN_US: u64 = 2_000_000;

/// Runs until toll ends the run, or has gone. The first line on `input` is the setup.
///
/// # Errors
/// The guard cannot begin: nothing may be switched on.
pub fn run(mut input: impl BufRead + Send + 'static, mut output: impl Write) -> Result<()> {
    let setup: GuardSetup = receive(&mut input)?.context("toll has gone before it said what to guard")?;
    let target = login(&setup.server)?;
    let query = ProbeQuery::choose(&target, setup.probe_query.as_deref())?;
    let replicas = setup
        .replicas
        .iter()
        .map(|(name, server)| Ok(Replica { name: name.clone(), target: login(server)? }))
        .collect::<Result<Vec<_>>>()?;
    let mut watch = Watch::start(&target, query, &replicas, setup.files.clone(), setup.seed)?;
    let mut switch = Switch::open(&target, &setup)?;
    let control = Control::start(&setup.vetoes)?;
    let metrics = setup.metrics.as_deref().map(Metrics::serve).transpose()?;
    let messages = read_messages(input)?;
    send(&mut output, &FromGuard::Ready)?;
    let mut state = Guard {
        breaker: Breaker::new(setup.limits),
        heard_us: clock::mono_us(),
        on_us: 0,
        written_bytes: 0,
        statement_us: 0,
        is_gone: false,
        drill: false,
        probes: VecDeque::new(),
        said_us: 0,
        usage: target.usage.clone(),
    };
    let mut next_us = clock::mono_us();
    loop {
        if state.hear(&messages) {
            return Ok(());
        }
        let mut reading = state.complete(watch.look());
        reading.veto = reading.veto.or_else(|| control.veto());
        let trip = if std::mem::take(&mut state.drill) {
            Some(Trip {
                condition: Condition::Drill,
                at_us: reading.at_us,
                reason: Condition::Drill.describe().into(),
            })
        } else {
            state.breaker.look(&reading).cloned()
        };
        if let Some(trip) = trip {
            let is_drill = trip.condition == Condition::Drill;
            // toll may not read, or not be there any more: the method goes off all the same.
            let _ = send(&mut output, &FromGuard::Tripped { trip: trip.clone() });
            let mut report = if is_drill { switch.drill(&trip) } else { switch.off(&trip, state.is_gone) };
            let _ = send(&mut output, &FromGuard::Off { report: report.clone() });
            if !is_drill {
                metrics.iter().for_each(Metrics::set_tripped);
                let mut retry = |is_gone| {
                    if !report.failures.is_empty() {
                        report = switch.off(&trip, is_gone);
                        let _ = send(&mut output, &FromGuard::Off { report: report.clone() });
                    }
                    report.failures.is_empty()
                };
                let after_s = state.await_recovery(&mut watch, &messages, &mut retry);
                state.insist(&messages, &mut retry);
                let _ = send(&mut output, &FromGuard::Recovered { after_s });
                return Ok(());
            }
        }
        if state.is_gone {
            return Ok(());
        }
        state.note_probes(&reading);
        if reading.at_us >= state.said_us + BEAT_US - LOOK_US / 2 {
            let look = state.summarise(&reading);
            if control.has_socket() {
                control.set_status(serde_json::to_string(&look)?);
            }
            metrics.iter().for_each(|metrics| metrics.set(look));
            if send(&mut output, &FromGuard::Beat { look }).is_err() {
                state.is_gone = true;
            }
        }
        next_us = (next_us + LOOK_US).max(clock::mono_us());
        clock::sleep_until(next_us);
    }
}

struct Guard {
    breaker: Breaker,
    /// When toll was last heard of.
    heard_us: u64,
    /// For how long a method was on when toll was last heard of; 0: none was.
    on_us: u64,
    written_bytes: u64,
    /// Age of toll's own open statement when toll was last heard of.
    statement_us: u64,
    is_gone: bool,
    drill: bool,
    /// When they were looked at, and their latencies.
    probes: VecDeque<(u64, f64)>,
    /// The look that toll last heard of.
    said_us: u64,
    /// Of the server.
    usage: Usage,
}

impl Guard {
    /// Takes what toll has said. True: the run is over.
    fn hear(&mut self, messages: &Receiver<ToGuard>) -> bool {
        loop {
            match messages.try_recv() {
                Ok(ToGuard::Beat { on_us, written_bytes, statement_us }) => {
                    (self.on_us, self.written_bytes, self.statement_us) =
                        (on_us, written_bytes, statement_us);
                }
                Ok(ToGuard::Drill) => self.drill = true,
                Ok(ToGuard::End) => return true,
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => {
                    self.is_gone = true;
                    return false;
                }
            }
            self.heard_us = clock::mono_us();
        }
    }

    /// With what the guard itself knows.
    fn complete(&self, reading: Reading) -> Reading {
        Reading {
            written_bytes: self.written_bytes,
            on_us: self.on_us,
            own_statement_us: reading.own_statement_us.max(self.statement_us),
            silent_us: reading.at_us.saturating_sub(self.heard_us),
            has_gone: self.is_gone,
            ..reading
        }
    }

    fn note_probes(&mut self, reading: &Reading) {
        self.probes.extend(reading.probes_us.iter().map(|us| (reading.at_us, *us)));
        while self.probes.front().is_some_and(|(then, _)| reading.at_us - then > LOOK_SPAN_US) {
            self.probes.pop_front();
        }
    }

    fn summarise(&mut self, reading: &Reading) -> Look {
        let said_us = std::mem::replace(&mut self.said_us, reading.at_us);
        let unsaid = self.probes.iter().filter(|(then, _)| *then > said_us);
        let (probes, probe_ln_us_sum) =
            unsaid.fold((0, 0.0), |(count, sum), (_, us)| (count + 1, sum + us.max(1e-3).ln()));
        let mut latencies: Vec<f64> = self.probes.iter().map(|(_, us)| *us).collect();
        let [probe_p50_us, probe_p99_us] = [0.5, 0.99].map(|q| super::breaker::quantile(&mut latencies, q));
        Look {
            at_us: reading.at_us,
            probes,
            probe_ln_us_sum,
            probe_p50_us,
            probe_p99_us,
            threads_running: reading.threads_running,
            is_on: self.on_us > 0,
            written_bytes: reading.written_bytes,
            queries: self.usage.queries(),
            connections: self.usage.connections(),
        }
    }

    /// Seconds until the server was calm again, by the same limits; `None`: it was not within half a minute.
    ///
    /// `retry` tries again to switch off; its argument says whether toll has gone.
    fn await_recovery(
        &mut self,
        watch: &mut Watch,
        messages: &Receiver<ToGuard>,
        retry: &mut impl FnMut(bool) -> bool,
    ) -> Option<f64> {
        let begun_us = clock::mono_us();
        let mut calm_since = None;
        let mut retry_us = begun_us + RETRY_US;
        let mut breaker = Breaker::new(self.breaker.limits().clone());
        let mut next_us = begun_us;
        while next_us < begun_us + RECOVERY_US {
            if self.hear(messages) {
                return None;
            }
            if clock::mono_us() >= retry_us {
                retry(self.is_gone);
                retry_us = clock::mono_us() + RETRY_US;
            }
            // Whether toll speaks is no matter of the server's.
            let reading = Reading { veto: None, ..watch.look() };
            let now_us = reading.at_us;
            if breaker.look(&reading).is_some() {
                breaker = Breaker::new(self.breaker.limits().clone());
                calm_since = None;
            } else if now_us - *calm_since.get_or_insert(now_us) >= CALM_US {
                return Some((now_us - begun_us) as f64 / 1e6);
            }
            next_us = (next_us + LOOK_US).max(clock::mono_us());
            clock::sleep_until(next_us);
        }
        None
    }

    /// Goes on while toll, which would do the same, is not there: for as long as a restart of a large server takes.
    fn insist(&mut self, messages: &Receiver<ToGuard>, retry: &mut impl FnMut(bool) -> bool) {
        let until_us = clock::mono_us() + INSIST_US;
        while !self.hear(messages) && self.is_gone && !retry(true) && clock::mono_us() < until_us {
            clock::sleep_until(clock::mono_us() + RETRY_US);
        }
    }
}

/// What switches off.
struct Switch {
    setup: GuardSetup,
    guarded: Session,
    others: Vec<(ServerRef, Session)>,
}

impl Switch {
    fn open(target: &Target, setup: &GuardSetup) -> Result<Self> {
        let others = setup
            .others
            .iter()
            .map(|(server, of_it)| Ok((server.clone(), Session::open(&login(of_it)?)?)))
            .collect::<Result<_>>()?;
        Ok(Self { setup: setup.clone(), guarded: Session::open(target)?, others })
    }

    /// As in earnest, with a statement that changes nothing over each of its connections.
    fn drill(&mut self, trip: &Trip) -> OffReport {
        let sessions =
            std::iter::once(&mut self.guarded).chain(self.others.iter_mut().map(|(_, other)| other));
        let failures: Vec<String> = sessions
            .filter_map(|session| session.run(&["DO 1".to_owned()]).err().map(|error| format!("{error:#}")))
            .collect();
        let mut report = self.off(trip, false);
        report.failures.extend(failures);
        report
    }

    /// `has_gone`: toll has, and does not do the same.
    fn off(&mut self, trip: &Trip, has_gone: bool) -> OffReport {
        let (dir, run_id) = (self.setup.journal_dir.clone(), self.setup.run_id.clone());
        let undone = toll_journal::undo_treatments(&dir, &run_id, has_gone, |server, statements| {
            let other = self.others.iter_mut().find(|(other, _)| other.is_at_same_address(server));
            other.map_or(&mut self.guarded, |(_, session)| session).run(statements)
        });
        let took_us = clock::mono_us().saturating_sub(trip.at_us);
        match undone {
            Ok(undone) => OffReport { took_us, actions: undone.actions, failures: undone.failures },
            Err(error) => OffReport { took_us, actions: Vec::new(), failures: vec![format!("{error:#}")] },
        }
    }
}

/// An open connection, for statements that switch off.
struct Session {
    target: Target,
    connection: Option<Connection>,
}

impl Session {
    fn open(target: &Target) -> Result<Self> {
        Ok(Self {
            target: target.clone(),
            connection: Some(connect(target).with_context(|| format!("cannot reach {}", target.address))?),
        })
    }

    /// Sends all statements, going on past one that is refused; the first that finds no server is the last.
    fn run(&mut self, statements: &[String]) -> Result<()> {
        let mut refused = Vec::new();
        for sql in statements {
            match self.send(sql) {
                Ok(()) => {}
                Err(error) if toll_journal::is_already_gone(&error) => {}
                Err(error) if error.is_fatal() => {
                    return Err(error).with_context(|| format!("the server did not do `{sql}`"));
                }
                Err(error) => refused.push(format!("`{sql}`: {error}")),
            }
        }
        ensure!(refused.is_empty(), "the server refused {}", refused.join("; "));
        Ok(())
    }

    /// Over the open connection; once over a new one if that is lost.
    fn send(&mut self, sql: &str) -> Result<(), toll_mysql::Error> {
        if let Some(connection) = &mut self.connection {
            match connection.exec_drop(sql) {
                Err(error) if error.is_fatal() => self.connection = None,
                answered => return answered,
            }
        }
        let connection = self.connection.insert(connect(&self.target)?);
        let answered = connection.exec_drop(sql);
        if answered.as_ref().is_err_and(toll_mysql::Error::is_fatal) {
            self.connection = None;
        }
        answered
    }
}

fn connect(target: &Target) -> Result<Connection, toll_mysql::Error> {
    let target = Target { connect_timeout: OFF_TIMEOUT.min(target.connect_timeout), ..target.clone() };
    let mut connection = Connection::connect(&target)?;
    connection.set_read_timeout(Some(OFF_TIMEOUT))?;
    // It says nothing until it is needed: the server must not end it for that.
    connection.exec_drop("SET SESSION wait_timeout = 31536000")?;
    Ok(connection)
}

fn login(server: &ServerLogin) -> Result<Target> {
    let target = Target::from_defaults_file(&server.defaults_file)?;
    let db = server.schema.clone().or(target.db.clone());
    Ok(Target { db, identity: server.identity.clone(), ..target })
}

/// On a thread, so that no look waits for a line.
fn read_messages(mut input: impl BufRead + Send + 'static) -> Result<Receiver<ToGuard>> {
    let (tell, messages) = channel();
    std::thread::Builder::new().name("messages".into()).spawn(move || {
        // Whatever ends the lines, toll has gone.
        while let Ok(Some(message)) = receive(&mut input) {
            if tell.send(message).is_err() {
                return;
            }
        }
    })?;
    Ok(messages)
}
