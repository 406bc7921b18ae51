//! Arguments of `toll-fleet`.

use crate::compare::{Baseline, RangeArgument};
use crate::distributed::{WorkerAddress, Workers};
use crate::poll;
use crate::tables::{Tables, TimeRange, unix_us};
use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toll_digest::TimeBound;
use toll_sys::units::{self, Percent};
use toll_tables::{Grain, Location};

/// Rank the queries of many hosts, from tables of their digests
///
/// Percentiles of merged rows are as exact as those of one host: within 0.8%.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    toll-fleet top --tables /var/lib/toll/tables --since 2h\n  \
    toll-fleet compare --tables /var/lib/toll/tables --at '2026-11-21 14:00' --since '2026-11-21 12:00'\n  \
    toll-fleet top --tables /var/lib/toll/tables --where \"cluster = 'shop' AND role = 'replica'\"\n  \
    toll-fleet class A88E850C664D65442BCCA77FCE7C6843 --tables /var/lib/toll/tables\n  \
    toll-fleet poll --server db1.cnf --server db2.cnf --tables /var/lib/toll/tables --cluster shop\n  \
    toll-fleet sql --tables /var/lib/toll/tables 'SELECT host, sum(n) FROM digests GROUP BY host'\n\
    Exit codes: 0 done; 1 it failed; 2 wrong arguments; 3 watch --at has alerts; 130 interrupted."
)]
pub struct Fleet {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Classes by their query time, over all hosts
    Top {
        /// Show so many classes
        #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        source: Source,
    },
    /// One class on each host
    Class {
        /// Its ID, as the other commands and digests show it
        id: String,
        #[command(flatten)]
        source: Source,
    },
    /// Classes that are slower, faster, new or gone: since a moment, against another time, or on one host
    Compare {
        #[command(flatten)]
        with: With,
        /// Smallest change of the typical query time that counts as slower or faster
        #[arg(long, value_name = "PERCENT", default_value = "5%")]
        min_change: Percent,
        #[command(flatten)]
        source: Source,
    },
    /// Each host beside the others of its cluster, the slowest for the same queries first
    Hosts {
        #[command(flatten)]
        source: Source,
    },
    /// How much of each host's traffic the tables have
    Coverage {
        #[command(flatten)]
        source: Source,
    },
    /// Merge the many files of an hour or a day into one, and their rows into one for each stretch
    ///
    /// Rows are sums, so that no percentile changes. Each counts once at every moment, also where this is killed.
    Compact {
        /// Directory or bucket of the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// Stretch of time that rows are merged to; 10m: within each hour that has ended
        #[arg(long, value_name = "GRAIN", default_value = "hour")]
        grain: GrainArgument,
        /// Only hours or days that ended so long ago: files may arrive late
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2h")]
        older_than: Duration,
        /// Only days (UTC) that ended less than so long ago: the others take time, though they have nothing to merge
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        newer_than: Option<Duration>,
        /// Remove what is replaced only after so long: questions that began before still read it
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1m")]
        keep_replaced: Duration,
    },
    /// Alert about classes that are slower or new, and about hosts that are silent
    ///
    /// A class is reported once two intervals in a row differ from the day before them.
    Watch {
        /// Directory or bucket of the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// Length of an interval, each of which is judged once it is over
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "10m")]
        every: Duration,
        /// Judge an interval so long after its end: files may arrive late
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "15m")]
        delay: Duration,
        /// Smallest change of the typical query time that counts
        #[arg(long, value_name = "PERCENT", default_value = "10%")]
        min_change: Percent,
        /// Offer the alerts to Prometheus at this address or port
        #[arg(long, value_name = "ADDRESS:PORT")]
        metrics: Option<String>,
        /// Post them to this URL, in the format of Prometheus' Alertmanager: its `/api/v2/alerts`
        #[arg(long, value_name = "URL")]
        webhook: Option<String>,
        /// Judge once, as of this time; exit code 3: there are alerts
        #[arg(long, value_name = "TIME", conflicts_with_all = ["delay", "metrics"])]
        at: Option<TimeBound>,
    },
    /// Show the tables on a page, and answer the SQL of clients of PostgreSQL: Grafana, psql, Metabase
    Serve {
        /// Directory or bucket of the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// Address and port for clients of PostgreSQL
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5433")]
        listen: SocketAddr,
        /// Address and port of the page
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8033")]
        page: SocketAddr,
        /// Listen beyond this host, in the clear and without a password
        #[arg(long)]
        plain: bool,
    },
    /// Write digests of servers from their own counters, where nothing may run on their hosts
    ///
    /// For MySQL 8.0 and later, whose performance_schema has histograms. Nothing is changed on the server. Its user needs
    /// GRANT SELECT ON performance_schema.*; the password comes from the option file or MYSQL_PWD.
    Poll {
        /// A server: an option file with a [client] section, or a DSN; may be repeated
        #[arg(long = "server", value_name = "DSN|FILE", required = true)]
        servers: Vec<poll::Server>,
        /// Directory or bucket for the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// The cluster that the servers belong to
        #[arg(long, value_name = "NAME", default_value = "default")]
        cluster: String,
        /// A row for each class and stretch of this length
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1m")]
        every: Duration,
        /// End after this time
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        duration: Option<Duration>,
    },
    /// Answer parts of the questions of others, which name this with --workers
    ///
    /// The tables are in a bucket, or in a directory that has the same path on all hosts.
    Worker {
        /// Directory or bucket of the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// Address and port
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5434")]
        listen: SocketAddr,
        /// Listen beyond this host, in the clear and without a password
        #[arg(long)]
        plain: bool,
    },
    /// Say what is known of hosts: roles, versions, regions, or whatever a CSV file has
    ///
    /// Its columns are in the table hosts, and in conditions of --where. Its first line names them: host, then others; cluster
    /// where names of hosts are there twice. It replaces what was said before.
    Inventory {
        /// A CSV file with a line for each host
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Directory or bucket of the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
    },
    /// Remove days that are older than an age
    Prune {
        /// Directory or bucket of the tables
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// Remove whole days (UTC) that ended so long ago
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        older_than: Duration,
    },
    /// Write tables of many hosts that resemble those seen, to try queries and storage at a size
    Simulate {
        /// Tables of the hosts seen: classes, rates and histograms are theirs
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        like: Location,
        /// New directory or bucket for the simulated tables: a row for each class, host and hour
        #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
        tables: Location,
        /// Number of hosts, in clusters of ten
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        hosts: u32,
        /// Days, the last of them yesterday
        #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        days: u32,
        /// Seed of all draws
        #[arg(long, value_name = "NUMBER", default_value = "1")]
        seed: u64,
    },
    Completions(toll_reference::Completions),
    Man(toll_reference::Man),
    /// Rows of a statement on the tables digests, cluster_digests, fleet_digests, texts, coverage and hosts
    Sql {
        statement: String,
        #[command(flatten)]
        source: Source,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum GrainArgument {
    #[value(name = "10m")]
    TenMinutes,
    Hour,
    Day,
}

impl From<GrainArgument> for Grain {
    fn from(grain: GrainArgument) -> Self {
        match grain {
            GrainArgument::TenMinutes => Self::TenMinutes,
            GrainArgument::Hour => Self::Hour,
            GrainArgument::Day => Self::Day,
        }
    }
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct With {
    /// The time from a moment on with that before it, such as a deployment
    #[arg(long, value_name = "TIME")]
    at: Option<TimeBound>,
    /// The time of --since and --until with this one: 2d..1d, or times as they have them
    #[arg(long, value_name = "FROM..UNTIL")]
    baseline: Option<RangeArgument>,
    /// One host with the others of its cluster, at the same time
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

impl With {
    pub fn baseline(self) -> anyhow::Result<Baseline> {
        match (self.at, self.baseline, self.host) {
            (Some(moment), _, _) => Ok(Baseline::Before(unix_us(moment))),
            (_, Some(RangeArgument(range)), _) => Ok(Baseline::Range(range)),
            (_, _, Some(host)) => Ok(Baseline::ClusterOf(host)),
            (None, None, None) => bail!("one of --at, --baseline and --host is needed"),
        }
    }
}

#[derive(Debug, Args)]
pub struct Source {
    /// Directory or bucket of the tables
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
    tables: Location,
    /// Only stretches that begin at or after a time: 2h (ago), 2026-11-21 [10:00:00]
    #[arg(long, value_name = "TIME")]
    since: Option<TimeBound>,
    /// Only stretches that begin before a time
    #[arg(long, value_name = "TIME")]
    until: Option<TimeBound>,
    /// Only hosts for which this holds: an SQL condition on the table hosts, such as cluster = 'shop'
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Spread the question over these, two at least (`toll-fleet worker`)
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    workers: Vec<WorkerAddress>,
    /// Print JSON: an object for each row, or one of a comparison
    #[arg(long)]
    pub json: bool,
}

impl Source {
    /// # Errors
    /// As [`Tables::open`].
    pub fn open(&self) -> anyhow::Result<Tables> {
        Ok(Tables::open(&self.tables)?.with_workers(Workers::new(self.workers.clone())))
    }

    /// Of the hosts; `None`: all.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_deref()
    }

    pub fn range(&self) -> TimeRange {
        TimeRange {
            since_us: self.since.map_or(TimeRange::ALL.since_us, unix_us),
            until_us: self.until.map_or(TimeRange::ALL.until_us, unix_us),
        }
    }
}
