//! Page of `serve`, and the answers that it asks for.
//!
//! It asks a few questions alone; each answer is a list of JSON objects, one for each row.

use crate::print;
use crate::queries::{self, Question, answer, checked_id};
use crate::tables::{Tables, TimeRange};
use anyhow::Context;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use datafusion::logical_expr::{col, lit};
use serde::Deserialize;
use serde_json::Value;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Built from viewer/.
const PAGE: &str = include_str!("page.html");
/// Questions that are answered at once; others wait.
const ANSWERS_MAX: usize = 4;
/// Classes in the table, and lines of the chart.
const CLASSES: usize = 50;
const LINES: usize = 7;
/// The chart has so many points at most.
const POINTS: i64 = 240;

/// Serves until it fails.
///
/// # Errors
/// The socket fails.
pub async fn serve(tables: Arc<Tables>, listener: TcpListener, is_plain: bool) -> anyhow::Result<()> {
    let questions = Router::new()
        .route("/tables", get(extent))
        .route("/load", get(load))
        .route("/classes", get(classes))
        .route("/classes/{id}", get(class))
        .route("/hosts", get(hosts))
        .route("/coverage", get(coverage))
        .with_state(Arc::new(Page { tables, room: Semaphore::new(ANSWERS_MAX) }));
    let app = Router::new()
        .route("/", get(|| async { ([(header::CACHE_CONTROL, "no-store")], Html(PAGE)) }))
        .nest("/api", questions)
        .layer(from_fn_with_state(is_plain, refuse_other_names));
    listener.set_nonblocking(true)?;
    axum::serve(tokio::net::TcpListener::from_std(listener)?, app).await.context("the page's socket failed")
}

async fn refuse_other_names(
    State(is_plain): State<bool>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    if is_plain || is_own_name(&headers) {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "ask for this page by its address, or as localhost\n").into_response()
}

/// Else a page of another site, whose name's address was changed to this one, could read the answers (DNS rebinding).
fn is_own_name(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

struct Page {
    tables: Arc<Tables>,
    room: Semaphore,
}

/// What the page shows.
#[derive(Debug, Deserialize)]
struct Shown {
    #[serde(default = "first_us")]
    since_us: i64,
    #[serde(default = "last_us")]
    until_us: i64,
    /// `None`: all.
    cluster: Option<String>,
}

fn first_us() -> i64 {
    TimeRange::ALL.since_us
}

fn last_us() -> i64 {
    TimeRange::ALL.until_us
}

type Answer = Result<Json<Vec<Value>>, (StatusCode, String)>;

impl Page {
    async fn answer(&self, shown: &Shown, question: Question) -> Answer {
        let range = TimeRange { since_us: shown.since_us, until_us: shown.until_us };
        let of = shown.cluster.as_deref().map(|cluster| col("cluster").eq(lit(cluster)));
        let asked = async {
            let _place = self.room.acquire().await?;
            print::objects(&answer(&self.tables, range, of, &question).await?)
        };
        let failed = |error: anyhow::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
        asked.await.map(Json).map_err(failed)
    }
}

type Asked = (State<Arc<Page>>, Query<Shown>);

async fn extent((State(page), Query(shown)): Asked) -> Answer {
    page.answer(&shown, Question::Sql(queries::EXTENT.to_owned())).await
}

async fn load((State(page), Query(shown)): Asked) -> Answer {
    let step_us = shown.until_us.saturating_sub(shown.since_us) / POINTS;
    page.answer(&shown, Question::Load(LINES, step_us)).await
}

async fn classes((State(page), Query(shown)): Asked) -> Answer {
    page.answer(&shown, Question::Top(CLASSES)).await
}

async fn class(State(page): State<Arc<Page>>, Path(id): Path<String>, Query(shown): Query<Shown>) -> Answer {
    let id = checked_id(&id).map_err(|error| (StatusCode::BAD_REQUEST, format!("{error:#}")))?;
    page.answer(&shown, Question::Sql(queries::class(id))).await
}

async fn hosts((State(page), Query(shown)): Asked) -> Answer {
    page.answer(&shown, Question::Sql(queries::HOSTS.to_owned())).await
}

async fn coverage((State(page), Query(shown)): Asked) -> Answer {
    page.answer(&shown, Question::Sql(queries::COVERAGE.to_owned())).await
}
