//! How does the server of a run come to stand ready, sandbox or not, and how is it left?

use crate::conduct::{Interrupt, Stage};
use crate::host;
use crate::journal::{Journal, Undo, quoted_name};
use crate::plan::{Facts, Settled, unavailable};
use crate::say::tell;
use crate::scenario::ServerWish;
use crate::server::private;
use crate::server::{DataSpec, External, Sandbox, SandboxSpec, ServerProgram};
use crate::treatment::{Admin, Fill, Remote};
use crate::workload::{Endpoints, Tunnel};
use anyhow::Context;
use std::path::{Path, PathBuf};
use toll_load::{Address, Target};
use toll_record::Host;

/// Which server the run is about.
#[derive(Debug, Clone)]
pub enum ServerChoice {
    Sandbox {
        program: Option<PathBuf>,
    },
    /// One that is there already; toll may create `schema` on it, and nothing else.
    External {
        target: Target,
        defaults_file: Option<PathBuf>,
        schema: String,
    },
}

/// A server, and all that trials need around it.
#[derive(Debug)]
pub struct Opened {
    pub stage: Stage,
    pub facts: Facts,
    pub sandbox: Option<Sandbox>,
    pub host: Host,
}

/// Data is the same for every run of a size, so that it is loaded once and cloned.
const DATA_SEED: u64 = 1;
/// Buffer pool of the documents; a faithful run asks for it, memory permitting.
const FAITHFUL_POOL_BYTES: u64 = 16 << 30;

/// Makes the server ready: started and filled, or found and its schema filled.
pub fn open(
    choice: &ServerChoice,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
    interrupt: &Interrupt,
) -> anyhow::Result<Opened> {
    let opened = match choice {
        ServerChoice::Sandbox { program } => sandbox(program.clone(), settled, dir, journal),
        ServerChoice::External { target, defaults_file, schema } => {
            external(target, defaults_file.clone(), schema, settled, dir, journal)
        }
    };
    opened.and_then(|mut opened| {
        if interrupt.raised() {
            close(opened.stage, opened.sandbox.take())?;
            anyhow::bail!("interrupted before the first trial");
        }
        Ok(opened)
    })
}

/// Puts everything back and ends the sandbox.
pub fn close(stage: Stage, sandbox: Option<Sandbox>) -> anyhow::Result<()> {
    let Stage { journal, .. } = stage;
    let stopped = sandbox.map_or(Ok(()), |s| s.stop(&journal).map(drop));
    let undone = journal.undo_all();
    for failure in &undone.failures {
        tell!("toll: could not put back: {failure}; `toll clean` tries again");
    }
    stopped
}

fn sandbox(
    program: Option<PathBuf>,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
) -> anyhow::Result<Opened> {
    let found = ServerProgram::find(program.as_deref())?;
    let (tables, rows) = settled.data();
    let mut settings = options(&settled.scenario.server, found.flavour.name());
    // An option that toll has a name for goes by that name.
    let performance_schema = settings.iter().any(|s| s == "performance_schema=ON");
    settings.retain(|s| !s.starts_with("performance_schema="));
    let wants =
        |transport: &str| settled.arms.iter().any(|arm| settled.arm_workload(arm).transport == transport);
    let spec = SandboxSpec {
        program,
        tables,
        rows,
        performance_schema,
        ipv6: wants("ipv6"),
        tls: wants("tls"),
        settings,
        buffer_pool_bytes: if settled.profile_name == "faithful" { FAITHFUL_POOL_BYTES } else { 0 },
        ..SandboxSpec::default()
    };
    let data = DataSpec { tables, rows, seed: DATA_SEED };
    let tell = |text: &str| tell!("toll: {text}");
    let sandbox = Sandbox::start_prepared(&spec, data, &journal, &tell, |target| {
        crate::workload::prepare(target, tables, rows, DATA_SEED)
    })?;
    for warning in sandbox.warnings() {
        tell(warning);
    }
    let schema = Some(crate::workload::SCHEMA.to_owned());
    let endpoints = Endpoints {
        tcp: Some(Target { db: schema.clone(), ..sandbox.target() }),
        unix: Some(Target { db: schema, ..sandbox.unix_target() }),
        tunnel: None,
    };
    let admin = Admin::new(sandbox.unix_target(), None);
    let place = Place {
        server: sandbox.described(),
        pid: u32::try_from(sandbox.pid()).ok(),
        binary: sandbox.program().path.display().to_string(),
        datadir: sandbox.datadir().display().to_string(),
        socket: sandbox.socket().display().to_string(),
        port: sandbox.port(),
    };
    let (stage, facts, host) = stage(place, admin, endpoints, settled, dir, journal)?;
    Ok(Opened { stage, facts, sandbox: Some(sandbox), host })
}

/// Where a server is, as commands want to know it.
struct Place {
    server: toll_record::Server,
    pid: Option<u32>,
    binary: String,
    datadir: String,
    socket: String,
    port: u16,
}

fn stage(
    place: Place,
    mut admin: Admin,
    mut endpoints: Endpoints,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
) -> anyhow::Result<(Stage, Facts, Host)> {
    let variables = admin.variables("%")?;
    let facts = Facts {
        server: place.server,
        is_root: nix::unistd::geteuid().is_root(),
        may_set: admin.may_set_global(),
        variables,
    };
    let mut fill = Fill::new(&settled.scenario.define, &facts.server.flavour);
    fill.set("port", place.port.to_string());
    fill.set("socket", place.socket.clone());
    fill.set("datadir", place.datadir);
    fill.set("server_bin", place.binary);
    fill.set(
        "toll",
        std::env::current_exe().context("cannot find the toll binary itself")?.display().to_string(),
    );
    if let Some(pid) = place.pid {
        fill.set("pid", pid.to_string());
    }
    let dir = std::path::absolute(dir).context("cannot tell where the run directory is")?;
    let work_dir = dir.join("private");
    journal.record(Undo::Path { path: work_dir.clone() })?;
    std::fs::create_dir_all(&work_dir).with_context(|| format!("cannot make {}", work_dir.display()))?;
    let defaults = work_dir.join("client.cnf");
    let target = endpoints.unix.as_ref().or(endpoints.tcp.as_ref()).context("no way to the server")?;
    write_client_defaults(&defaults, target)?;
    fill.set("client_defaults", defaults.display().to_string());
    fill.set("schema", target.db.clone().unwrap_or_default());
    let wants_remote = settled.arms.iter().any(|arm| arm.remote_port.is_some());
    let remote = if wants_remote { Some(Remote::make(&journal)?) } else { None };
    if place.pid.is_some() && wants_tunnel(settled, &facts) {
        endpoints.tunnel = Some(Tunnel::open(&journal, &work_dir, place.port, &place.socket)?);
    }
    let host = host::facts(&dir, &facts.variables);
    let stage = Stage {
        journal,
        admin,
        endpoints,
        server_pid: place.pid,
        remote,
        fill,
        work_dir,
        artefact_dir: dir.join("artefacts"),
        port: place.port,
    };
    Ok((stage, facts, host))
}

fn wants_tunnel(settled: &Settled, facts: &Facts) -> bool {
    settled.arms.iter().any(|arm| {
        settled.arm_workload(arm).transport.starts_with("ssh-") && unavailable(arm, facts).is_none()
    })
}

/// An option file for client programs among the treatments, readable by its owner only.
fn write_client_defaults(path: &Path, target: &Target) -> anyhow::Result<()> {
    // Inside double quotes the clients undo a backslash before these two.
    let password = target.password.expose().replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!("[client]\nuser=\"{}\"\npassword=\"{password}\"\n", target.user);
    private::write(path, &text)
}

/// The options that the scenario wishes for this flavour, `name=value`.
fn options(wish: &ServerWish, flavour: &str) -> Vec<String> {
    ["any", flavour]
        .iter()
        .filter_map(|key| wish.options.get(*key))
        .flatten()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn external(
    target: &Target,
    defaults_file: Option<PathBuf>,
    schema: &str,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
) -> anyhow::Result<Opened> {
    let server = External::connect(target, defaults_file)?;
    let mut admin = Admin::new(server.target().clone(), Some(server.server().clone()));
    let within = Target { db: Some(schema.to_owned()), ..server.target().clone() };
    fill_schema(&server, &mut admin, &within, schema, settled.data(), &journal)?;
    let pid = server.pid().and_then(|pid| u32::try_from(pid).ok());
    let over = |address: Address| Some(Target { address, ..within.clone() });
    // A server on this host can be reached both ways; one elsewhere only as it was given.
    let endpoints = match (&target.address, pid) {
        (Address::Tcp { .. }, None) => Endpoints { tcp: Some(within.clone()), unix: None, tunnel: None },
        (Address::Tcp { .. }, Some(_)) => {
            let socket = server.socket();
            let unix = if socket.exists() { over(Address::Unix(socket)) } else { None };
            Endpoints { tcp: Some(within.clone()), unix, tunnel: None }
        }
        (Address::Unix(_), _) => Endpoints {
            tcp: server.port().and_then(|port| over(Address::Tcp { host: "127.0.0.1".into(), port })),
            unix: Some(within.clone()),
            tunnel: None,
        },
    };
    let binary = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    let place = Place {
        server: server.described(),
        pid,
        binary: binary.map_or_else(String::new, |p| p.display().to_string()),
        datadir: server.datadir().display().to_string(),
        socket: server.socket().display().to_string(),
        port: server.port().unwrap_or(0),
    };
    let (stage, facts, host) = stage(place, admin, endpoints, settled, dir, journal)?;
    Ok(Opened { stage, facts, sandbox: None, host })
}

/// A schema that toll makes is filled, and dropped after the run; one that was there is used as it
/// is, if its tables are large enough.
fn fill_schema(
    server: &External,
    admin: &mut Admin,
    target: &Target,
    schema: &str,
    (tables, rows): (u32, u64),
    journal: &Journal,
) -> anyhow::Result<()> {
    if server.create_schema(schema, journal)?.is_some() {
        return crate::workload::prepare(target, tables, rows, DATA_SEED);
    }
    let quoted = quoted_name(schema);
    for number in 1..=tables {
        let there = admin.number(&format!("SELECT COALESCE(MAX(id), 0) FROM {quoted}.sbtest{number}"));
        if there.is_none_or(|there| there < rows) {
            anyhow::bail!(
                "the schema {schema} was there before, and its table sbtest{number} does not hold {rows} rows: \
                 prepare it with `toll load prepare` or sysbench, or let toll make a schema of its own \
                 with --schema NAME"
            );
        }
    }
    Ok(())
}
