//! Command `toll server`: a private server for experiments.

use super::console::{show, tell};
use super::progress::LoadingBar;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use toll_execution::stage::data;
use toll_record::DataSetup;
use toll_server::background::BackgroundServer;
use toll_server::{Sandbox, SandboxSpec};

#[derive(Debug, Subcommand)]
pub enum Server {
    /// Start a sandbox server in the background and say how to connect
    Start(Start),
    /// Show the background server; exit code 1 if there is none
    Status {
        /// As JSON, without a password
        #[arg(long)]
        json: bool,
    },
    /// End the background server and remove its data
    Stop,
}

#[derive(Debug, Args)]
pub struct Start {
    /// mariadbd or mysqld to start [default: the first found on PATH or in /usr/sbin]
    #[arg(long, value_name = "PATH")]
    server_bin: Option<PathBuf>,
    /// TCP port, 2 modulo 8 as 3306 is [default: the first free one from 33002]
    #[arg(long)]
    port: Option<u16>,
    /// Tables of the prepared data
    #[arg(long, default_value_t = 8)]
    tables: u32,
    /// Rows in each table; 0 starts an empty server
    #[arg(long, default_value_t = 0)]
    rows: u64,
    /// Seed of the prepared data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Switch on performance_schema
    #[arg(long)]
    performance_schema: bool,
    /// Listen on ::1 as well as on 127.0.0.1
    #[arg(long)]
    ipv6: bool,
    /// A further server setting; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
}

pub fn run(verb: Server) -> Result<ExitCode> {
    match verb {
        Server::Start(arguments) => start(arguments),
        Server::Status { json } => status(json),
        Server::Stop => stop(),
    }
}

fn start(arguments: Start) -> Result<ExitCode> {
    let wanted = DataSetup {
        recipe: toll_model::data::DEFAULT.to_owned(),
        seed: arguments.seed,
        tables: arguments.tables,
        rows: arguments.rows,
        ..DataSetup::default()
    };
    let data_spec = data::spec(&wanted)?;
    let spec = SandboxSpec {
        program: arguments.server_bin,
        port: arguments.port,
        data_bytes: data_spec.bytes,
        performance_schema: arguments.performance_schema,
        ipv6: arguments.ipv6,
        settings: arguments.settings,
        ..SandboxSpec::default()
    };
    let tell = |text: &str| tell!("toll: {text}");
    let (server, warnings) = BackgroundServer::start(&spec, |spec, journal| {
        if wanted.rows == 0 {
            return Sandbox::start(spec, journal);
        }
        Sandbox::start_prepared(spec, &data_spec, journal, &tell, |target| {
            data::load(target, &wanted, &LoadingBar::default(), &spec.cancel)
        })
    })?;
    for warning in warnings {
        tell!("toll: warning: {warning}");
    }
    show(&server);
    Ok(ExitCode::SUCCESS)
}

fn status(json: bool) -> Result<ExitCode> {
    let running = BackgroundServer::find_running()?;
    if json {
        show!("{}", serde_json::to_string_pretty(&running)?);
    } else {
        match &running {
            Some(server) => show(server),
            None => show!("no sandbox server is running (toll server start)"),
        }
    }
    Ok(if running.is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn stop() -> Result<ExitCode> {
    match BackgroundServer::find_running()? {
        Some(server) => {
            let pid = server.process.pid;
            show!("sandbox server (pid {pid}): {}, its data removed", server.stop()?);
        }
        None => show!("no sandbox server is running"),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(server: &BackgroundServer) {
    let client = if server.flavour == "mariadb" { "mariadb" } else { "mysql" };
    show!("{} {}, pid {}", server.flavour, server.version, server.process.pid);
    show!("  tcp       127.0.0.1:{}", server.port);
    show!("  socket    {}", server.socket.display());
    show!("  data      {}", server.datadir.display());
    show!("  connect   {client} --defaults-extra-file={}", server.defaults_file.display());
    show!("  measure   toll run tcpdump-impact --server {}", server.defaults_file.display());
    show!("  end       toll server stop");
}
