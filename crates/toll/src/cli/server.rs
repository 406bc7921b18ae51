//! Command `toll server`: a private server for experiments.

use super::console::{eprint_line, print_line};
use super::progress::LoadingBar;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use toll_commands::json_format::JsonFormat;
use toll_execution::testbed::data::{self, SCHEMA};
use toll_record::DataSetup;
use toll_server::background::BackgroundServer;
use toll_server::{Sandbox, SandboxSpec};

#[derive(Debug, Subcommand)]
pub enum Server {
    /// Start a sandbox server in the background, and print how to connect
    Start(Start),
    /// Show the background server; exit code 1 if there is none
    Status {
        /// As JSON, without a password
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        format: JsonFormat,
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
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Tables of the prepared data
    #[arg(long, value_name = "N", default_value_t = 8)]
    tables: u32,
    /// Rows in each table; 0 starts an empty server
    #[arg(long, value_name = "N", default_value_t = 0)]
    rows: u64,
    /// Seed of the prepared data
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
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
        Server::Start(arguments) => start_server(arguments),
        Server::Status { json, format } => print_status(json || format.is_json()),
        Server::Stop => stop_server(),
    }
}

fn start_server(arguments: Start) -> Result<ExitCode> {
    let wanted = DataSetup {
        recipe: toll_model::data::DEFAULT_RECIPE.to_owned(),
        seed: arguments.seed,
        tables: arguments.tables,
        rows: arguments.rows,
        ..DataSetup::default()
    };
    let data_spec = data::build_spec(&wanted)?;
    let spec = SandboxSpec {
        program: arguments.server_bin,
        port: arguments.port,
        data_bytes: data_spec.bytes,
        performance_schema: arguments.performance_schema,
        ipv6: arguments.ipv6,
        settings: arguments.settings,
        ..SandboxSpec::default()
    };
    let tell = |text: &str| eprint_line!("toll: {text}");
    let (server, warnings) = BackgroundServer::start(&spec, |spec, journal| {
        if wanted.rows == 0 {
            return Sandbox::start(spec, journal);
        }
        Sandbox::start_prepared(spec, &data_spec, journal, &tell, |target| {
            data::load(target, &wanted, &LoadingBar::default(), &spec.cancel)
        })
    })?;
    for warning in warnings {
        eprint_line!("toll: warning: {warning}");
    }
    print_server(&server);
    Ok(ExitCode::SUCCESS)
}

fn print_status(json: bool) -> Result<ExitCode> {
    let running = BackgroundServer::find_running()?;
    if json {
        print_line!("{}", serde_json::to_string_pretty(&running)?);
    } else {
        match &running {
            Some(server) => print_server(server),
            None => print_line!("no sandbox server is running (toll server start)"),
        }
    }
    Ok(if running.is_some() { ExitCode::SUCCESS } else { ExitCode::from(super::exit_code::FAILED) })
}

fn stop_server() -> Result<ExitCode> {
    match BackgroundServer::find_running()? {
        Some(server) => {
            let pid = server.process.pid;
            print_line!("sandbox server (pid {pid}): {}, its data removed", server.stop()?);
        }
        None => print_line!("no sandbox server is running"),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_server(server: &BackgroundServer) {
    let client = if server.flavour == "mariadb" { "mariadb" } else { "mysql" };
    print_line!("{} {}, pid {}", server.flavour, server.version, server.process.pid);
    print_line!("  tcp       127.0.0.1:{}", server.port);
    print_line!("  socket    {}", server.socket.display());
    print_line!("  data      {}", server.datadir.display());
    print_line!("  connect   {client} --defaults-extra-file={}", server.defaults_file.display());
    let login = server.defaults_file.display();
    print_line!("  measure   toll run tcpdump-impact --server {login} --allow-schema {SCHEMA}");
    print_line!("  end       toll server stop");
}
