//! Questions spread over workers, by `datafusion-distributed`: `--workers` names them, and command `worker` is one.
//!
//! A worker gets a part of a plan and reads the files that it names: the tables lie in a bucket, or in a directory that has the
//! same path on each host. If a worker fails, the question begins again without it.

use crate::histogram;
use crate::serve::bind;
use crate::tables::Tables;
use anyhow::{Context, bail};
use datafusion::common::Result as QueryResult;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion_distributed::{
    DistributedExt, SessionStateBuilderExt, Worker, WorkerQueryContext, WorkerResolver,
};
use std::io::Write;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;

/// Smallest part of a question. Workers that the user names get parts of small tables, too.
const PART_BYTES: usize = 1;
/// Time for a connection to a worker.
const REACH_TIMEOUT: Duration = Duration::from_secs(2);

/// `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerAddress(Url);

impl FromStr for WorkerAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let url = Url::parse(&format!("http://{text}")).ok().filter(|url| has_port && url.path() == "/");
        Ok(Self(url.context("a worker is HOST:PORT")?))
    }
}

impl WorkerAddress {
    async fn is_reached(&self) -> bool {
        let Ok(places) = self.0.socket_addrs(|| None) else { return false };
        let reached = tokio::time::timeout(REACH_TIMEOUT, TcpStream::connect(places.as_slice())).await;
        reached.is_ok_and(|connected| connected.is_ok())
    }
}

/// Workers that can be reached, as far as is known.
#[derive(Debug, Default)]
pub struct Workers {
    reachable: Mutex<Vec<WorkerAddress>>,
}

impl Workers {
    pub fn new(workers: Vec<WorkerAddress>) -> Self {
        Self { reachable: Mutex::new(workers) }
    }

    fn reachable(&self) -> Vec<WorkerAddress> {
        self.reachable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A session whose questions go to the workers, if there are any.
    ///
    /// # Errors
    /// Never, but for a fault of the library.
    pub fn spread(&self, session: SessionStateBuilder) -> QueryResult<SessionStateBuilder> {
        let reachable = self.reachable();
        if reachable.is_empty() {
            return Ok(session);
        }
        let urls = reachable.into_iter().map(|worker| worker.0).collect();
        let session =
            session.with_distributed_worker_resolver(StaticWorkers(urls)).with_distributed_planner();
        session.with_distributed_file_scan_config_bytes_per_partition(PART_BYTES)
    }

    /// Answers a question. After an error it begins again without the workers that cannot be reached, at last in this process alone.
    ///
    /// # Errors
    /// Those of the question, if all workers are reached.
    pub async fn answer_with_retries<T>(
        &self,
        question: impl AsyncFn() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        loop {
            match question().await {
                Err(_) if self.remove_unreachable().await => {}
                answer => return answer,
            }
        }
    }

    /// True if at least one was removed.
    async fn remove_unreachable(&self) -> bool {
        let mut unreachable = Vec::new();
        for worker in self.reachable() {
            if !worker.is_reached().await {
                let _unread = writeln!(
                    std::io::stderr(),
                    "toll-fleet: the worker at {} cannot be reached: the question begins again without it",
                    worker.0.authority()
                );
                unreachable.push(worker);
            }
        }
        self.reachable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|worker| !unreachable.contains(worker));
        !unreachable.is_empty()
    }
}

/// A list that stays as it is.
struct StaticWorkers(Vec<Url>);

impl WorkerResolver for StaticWorkers {
    fn get_urls(&self) -> QueryResult<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Serves as a worker until it is ended.
///
/// # Errors
/// The address is taken, or for the whole network.
pub async fn run_worker(tables: &Tables, listen: SocketAddr, is_plain: bool) -> anyhow::Result<()> {
    if !listen.ip().is_loopback() && !is_plain {
        bail!(
            "{listen} is for the whole network, and everybody there could have this process read its files: listen on \
             an address that is reached through a tunnel, or set --plain"
        );
    }
    let listener = bind(listen, "--listen")?;
    listener.set_nonblocking(true)?;
    writeln!(std::io::stderr(), "toll-fleet: worker at {}", listener.local_addr()?)?;
    serve(tables, TcpListener::from_std(listener)?).await
}

async fn serve(tables: &Tables, listener: TcpListener) -> anyhow::Result<()> {
    let worker = Worker::from_session_builder(session_of_part).with_runtime_env(tables.worker_runtime()?);
    let server = Server::builder().add_service(worker.into_worker_server());
    server.serve_with_incoming(TcpIncoming::from(listener)).await.context("the worker has failed")
}

/// A part names toll's functions.
async fn session_of_part(of: WorkerQueryContext) -> QueryResult<SessionState> {
    let mut builder = of.builder;
    builder.aggregate_functions().get_or_insert_default().push(histogram::merging_function().into());
    builder.scalar_functions().get_or_insert_default().push(histogram::quantile_function().into());
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{Question, answer};
    use crate::tables::TimeRange;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use std::sync::Arc;
    use toll_digest::classes::{Digest, Settings};
    use toll_tables::{Location, Source, Stretch, TableWriter};
    use toll_wire::event::{Event, Sink};

    const MINUTE_US: i64 = 60_000_000;

    /// Four hosts, two hours, a file each ten minutes.
    fn write_tables(root: &Location) {
        for host in 0..4_u8 {
            let source = Source {
                host: format!("db{host}"),
                cluster: "shop".into(),
                source: "packets",
                id: [host; 16],
            };
            let mut writer =
                TableWriter::open(root.open().unwrap(), source, Duration::from_mins(10)).unwrap();
            for minute in 0..120 {
                let mut digest = Digest::new(Settings::default());
                for n in 1..50 {
                    let text = format!("select a from t{} where id = 1", ["a", "b", "c"][n % 3]);
                    let query_ns = Some(100_000 * n as u64 * u64::from(host + 1));
                    digest.on_event(&Event { text: text.as_bytes(), query_ns, ..Event::default() });
                }
                digest.settle();
                let begin_us = 1_764_165_600_000_000 + minute * MINUTE_US;
                let stretch =
                    Stretch { begin_us, width_us: MINUTE_US, digest: &digest, lost: 0, sampled_share: 1.0 };
                writer.add(&stretch).unwrap();
            }
            writer.flush().unwrap();
        }
    }

    async fn start_worker(root: &Location) -> WorkerAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let tables = Arc::new(Tables::open(root).unwrap());
        tokio::spawn(async move { serve(&tables, listener).await });
        address.parse().unwrap()
    }

    async fn top(root: &Location, workers: Vec<WorkerAddress>) -> (String, usize) {
        let tables = Tables::open(root).unwrap().with_workers(Workers::new(workers));
        let question = Question::Top(20);
        let ask = async || answer(&tables, TimeRange::ALL, None, &question).await;
        let rows = tables.workers().answer_with_retries(ask).await.unwrap();
        (pretty_format_batches(&rows).unwrap().to_string(), tables.workers().reachable().len())
    }

    #[tokio::test]
    async fn workers_give_the_answer_of_one_process_and_those_that_have_gone_are_done_without() {
        let dir = tempfile::tempdir().unwrap();
        let root = Location::Directory(dir.path().into());
        write_tables(&root);
        let (alone, _) = top(&root, Vec::new()).await;
        assert!(alone.contains("SELECT ta"), "{alone}");
        let workers = vec![start_worker(&root).await, start_worker(&root).await];
        assert_eq!(top(&root, workers.clone()).await, (alone.clone(), 2));

        let tables = Tables::open(&root).unwrap().with_workers(Workers::new(workers.clone()));
        let session = tables.session().await.unwrap();
        let sql = "SELECT class, toll_histogram(hist_bin, hist_n) FROM digests GROUP BY class";
        let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        assert_eq!(plan.name(), "DistributedExec");

        // Nobody listens there.
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let with_gone = vec![workers[0].clone(), gone.to_string().parse().unwrap()];
        assert_eq!(top(&root, with_gone).await, (alone.clone(), 1));
        let two_gone = vec![gone.to_string().parse().unwrap(), "127.0.0.1:1".parse().unwrap()];
        assert_eq!(top(&root, two_gone).await, (alone, 0));
    }

    #[test]
    fn a_worker_is_a_host_and_a_port() {
        for text in ["db1:5434", "127.0.0.1:80", "[::1]:5434"] {
            assert!(text.parse::<WorkerAddress>().is_ok(), "{text}");
        }
        for text in ["", "db1", "[::1]", "http://db1:5434", "db1:x", "db1:5434/x"] {
            assert!(text.parse::<WorkerAddress>().is_err(), "{text}");
        }
    }
}
