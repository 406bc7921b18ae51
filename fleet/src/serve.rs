//! Command `serve`: a page, and the tables for every client that speaks PostgreSQL's protocol: Grafana, psql, Metabase.
//!
//! Answers queries and changes nothing.

use crate::page;
use crate::tables::Tables;
use anyhow::{Context, bail};
use async_trait::async_trait;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Expr, Query, Set, SetExpr, Statement, Visit, Visitor};
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_postgres::datafusion_pg_catalog::setup_pg_catalog;
use datafusion_postgres::hooks::cursor::CursorStatementHook;
use datafusion_postgres::hooks::set_show::SetShowHook;
use datafusion_postgres::hooks::transactions::TransactionStatementHook;
use datafusion_postgres::hooks::{HookClient, QueryHook};
use datafusion_postgres::pgwire::api::ClientInfo;
use datafusion_postgres::pgwire::api::results::{Response, Tag};
use datafusion_postgres::pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use datafusion_postgres::{ServerOptions, serve_with_hooks};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Clients at once.
const CONNECTIONS_MAX: usize = 64;
/// As clients name it.
const DATABASE: &str = "datafusion";

/// Where to answer.
#[derive(Debug, Clone, Copy)]
pub struct ListenPlaces {
    /// Clients of PostgreSQL.
    pub sql: SocketAddr,
    /// Browsers.
    pub page: SocketAddr,
    /// Addresses beyond this host are allowed.
    pub is_plain: bool,
}

/// Serves until it is ended.
///
/// # Errors
/// An address is taken, or for the whole network.
pub async fn serve(tables: Tables, places: ListenPlaces) -> anyhow::Result<()> {
    let ListenPlaces { sql, page, is_plain } = places;
    if let Some(open) = [sql, page].iter().find(|address| !address.ip().is_loopback() && !is_plain) {
        bail!(
            "{open} is for the whole network, and everybody there could read the queries' fingerprints: listen on \
             127.0.0.1 behind a proxy or an SSH tunnel, or set --plain"
        );
    }
    let page = bind(page, "--page")?;
    // The library takes no socket, says nothing of the port that it gets, and little of one that is taken.
    let sql = bind(sql, "--listen")?.local_addr()?;
    writeln!(std::io::stderr(), "toll-fleet: page at http://{}", page.local_addr()?)?;
    writeln!(std::io::stderr(), "toll-fleet: SQL at postgresql://{sql}/{DATABASE}, any user")?;
    let session = Arc::new(tables.session().await?);
    tokio::try_join!(serve_sql(session, sql), page::serve(Arc::new(tables), page, is_plain))?;
    Ok(())
}

/// # Errors
/// It is taken.
pub fn bind(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| {
        format!("cannot listen on {address}: end what listens there, or name another port with {option}")
    })
}

async fn serve_sql(session: Arc<SessionContext>, listen: SocketAddr) -> anyhow::Result<()> {
    setup_pg_catalog(&session, DATABASE, EmptyContextProvider)
        .map_err(|error| anyhow::Error::new(*error))
        .context("cannot describe the tables to clients")?;
    let host = match listen.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let options =
        ServerOptions::new().with_host(host).with_port(listen.port()).with_max_connections(CONNECTIONS_MAX);
    let hooks: Vec<Arc<dyn QueryHook>> = vec![
        Arc::new(ReadsOnly),
        Arc::new(CursorStatementHook),
        Arc::new(SetShowHook),
        Arc::new(TransactionStatementHook),
    ];
    serve_with_hooks(session, &options, hooks).await.with_context(|| format!("cannot listen on {listen}"))
}

/// Refuses every statement that is more than a question.
#[derive(Debug)]
struct ReadsOnly;

/// Settings that clients send and that are of their connection alone, or of nothing here. All others are the engine's, which
/// all clients share.
const CLIENT_SETTINGS: [&str; 16] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "row_security",
    "search_path",
    "standard_conforming_strings",
    "statement_timeout",
    "transaction_read_only",
];

/// What becomes of a statement.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Allowed,
    /// It asks for what is so already.
    Ignored,
    Refused(String),
}

fn fate_of(statement: &Statement) -> Fate {
    let only = |is_allowed: bool| {
        let refused = || Fate::Refused("toll-fleet answers queries, and changes nothing".into());
        if is_allowed { Fate::Allowed } else { refused() }
    };
    match statement {
        _ if statement.visit(&mut Changes).is_break() => only(false),
        Statement::Explain { statement, .. } => only(matches!(**statement, Statement::Query(_))),
        Statement::Set(set) => fate_of_setting(set),
        Statement::Query(_)
        | Statement::ShowVariable { .. }
        | Statement::StartTransaction { .. }
        | Statement::Commit { .. }
        | Statement::Rollback { .. }
        | Statement::Declare { .. }
        | Statement::Fetch { .. }
        | Statement::Close { .. }
        | Statement::Deallocate { .. }
        | Statement::Discard { .. } => only(true),
        _ => only(false),
    }
}

/// Ends at a query that is more than that, wherever it stands: the engine makes a table of `SELECT ... INTO`.
struct Changes;

impl Visitor for Changes {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        fn only_reads(part: &SetExpr) -> bool {
            match part {
                SetExpr::Select(select) => select.into.is_none(),
                SetExpr::SetOperation { left, right, .. } => only_reads(left) && only_reads(right),
                // Visited as a query.
                SetExpr::Query(_) | SetExpr::Values(_) | SetExpr::Table(_) => true,
                _ => false,
            }
        }
        if only_reads(&query.body) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn fate_of_setting(set: &Set) -> Fate {
    let (name, value) = match set {
        Set::SetNames { .. } | Set::SetTransaction { .. } => return Fate::Allowed,
        Set::SetTimeZone { value, .. } => ("timezone".to_owned(), value.to_string()),
        Set::SingleAssignment { variable, values, .. } => {
            let parts = variable.0.iter().map(|part| match part.as_ident() {
                Some(name) => name.value.to_lowercase(),
                None => part.to_string(),
            });
            (parts.collect::<Vec<_>>().join("."), values.first().map_or_else(String::new, Expr::to_string))
        }
        other => (other.to_string(), String::new()),
    };
    if CLIENT_SETTINGS.contains(&name.as_str()) {
        return Fate::Allowed;
    }
    if name == "timezone" {
        let zone = value.trim_matches(['\'', '"']);
        if ["utc", "etc/utc", "default"].contains(&zone.to_lowercase().as_str()) {
            return Fate::Ignored;
        }
        let words = "toll-fleet has all times in UTC: convert them in the query, or in the client";
        return Fate::Refused(words.into());
    }
    Fate::Refused(format!("toll-fleet does not take the setting {name}: it would be that of all clients"))
}

/// The answer to what is not passed on.
fn answer_at_once(statement: &Statement) -> Option<PgWireResult<Response>> {
    match fate_of(statement) {
        Fate::Allowed => None,
        Fate::Ignored => Some(Ok(Response::Execution(Tag::new("SET")))),
        Fate::Refused(words) => Some(Err(refusal(words))),
    }
}

fn refusal(words: String) -> PgWireError {
    // insufficient_privilege
    PgWireError::UserError(Box::new(ErrorInfo::new("ERROR".into(), "42501".into(), words)))
}

#[async_trait]
impl QueryHook for ReadsOnly {
    async fn handle_simple_query(
        &self,
        statement: &Statement,
        _session: &SessionContext,
        _client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        answer_at_once(statement)
    }

    async fn handle_extended_parse_query(
        &self,
        statement: &Statement,
        _session: &SessionContext,
        _client: &(dyn ClientInfo + Send + Sync),
    ) -> Option<PgWireResult<LogicalPlan>> {
        match fate_of(statement) {
            Fate::Refused(words) => Some(Err(refusal(words))),
            Fate::Allowed | Fate::Ignored => None,
        }
    }

    async fn handle_extended_query(
        &self,
        statement: &Statement,
        _plan: &LogicalPlan,
        _params: &ParamValues,
        _session: &SessionContext,
        _client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        answer_at_once(statement)
    }
}
