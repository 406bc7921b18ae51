//! Tests that a sandbox server starts, serves, and leaves nothing behind. With real servers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use toll_journal::Journal;
use toll_mysql::Connection;
use toll_server::{DatasetSpec, Flavour, Sandbox, SandboxSpec, ServerProgram};
use toll_sys::process::{RUN_ID_VARIABLE, Termination};

/// A journal and a cache of the test's own, so that tests may run side by side.
struct SandboxFixture {
    dir: TempDir,
    journal: Journal,
}

impl SandboxFixture {
    fn new(name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("toll-test-").tempdir().expect("a directory");
        let run_id = format!("test-{name}-{}", std::process::id());
        let journal = Journal::begin_in(&dir.path().join("journal"), &run_id).expect("a journal");
        Self { dir, journal }
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec { cache: Some(self.dir.path().join("cache")), ..SandboxSpec::default() }
    }

    fn entries(&self, below: &str) -> Vec<String> {
        let list =
            std::fs::read_dir(self.dir.path().join("cache").join(below)).into_iter().flatten().flatten();
        let mut names: Vec<_> = list.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Nothing left: no process with our mark, no file of the sandbox, no pending change.
    fn assert_clean(&self) {
        assert_eq!(self.entries("sandbox"), [""; 0]);
        assert_eq!(processes_of(self.journal.run_id()), [0; 0]);
        let undone = self.journal.undo_all();
        assert_eq!((undone.actions, undone.failures), (vec![], vec![]));
    }
}

fn processes_of(run_id: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let mark = format!("{RUN_ID_VARIABLE}={run_id}");
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != own)
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.split(|&b| b == 0).any(|variable| variable == mark.as_bytes()))
        })
        .collect()
}

fn have_server(given: Option<&Path>) -> bool {
    let found = ServerProgram::find(given);
    if let Err(reason) = &found {
        toll_testkit::skip!("{reason:#}");
    }
    found.is_ok()
}

fn scalar(target: &toll_mysql::Target, sql: &str) -> String {
    let mut connection = Connection::connect(target).expect("connected");
    connection.query(sql).expect(sql).scalar().unwrap_or_default().to_owned()
}

#[test]
fn a_sandbox_serves_over_tcp_and_socket_and_leaves_no_trace() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("serves");
    let sandbox = Sandbox::start(&fixture.spec(), &fixture.journal).expect("started");
    assert_eq!(sandbox.port() % 8, 2);
    assert_eq!(scalar(&sandbox.target(), "select @@port"), sandbox.port().to_string());
    assert_eq!(scalar(&sandbox.unix_target(), "select @@bind_address"), "127.0.0.1");
    assert_eq!(scalar(&sandbox.target(), "select @@performance_schema"), "0");
    let wanted =
        format!("innodb_buffer_pool_size={}", scalar(&sandbox.target(), "select @@innodb_buffer_pool_size"));
    assert!(sandbox.config().contains(&wanted), "{wanted} is not in {:?}", sandbox.config());

    assert_eq!(
        sandbox.stop(&fixture.journal).expect("stopped"),
        Termination::Signalled(nix::sys::signal::Signal::SIGTERM)
    );
    fixture.assert_clean();
}

#[test]
fn nobody_gets_in_without_the_password() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("password");
    let sandbox = Sandbox::start(&fixture.spec(), &fixture.journal).expect("started");
    for user in ["toll", "root", ""] {
        let stranger = toll_mysql::Target {
            user: user.into(),
            password: toll_mysql::Secret::default(),
            ..sandbox.target()
        };
        assert!(Connection::connect(&stranger).is_err(), "{user:?} got in");
    }
    let private = std::fs::metadata(sandbox.client_defaults()).expect("client.cnf");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&private.permissions()) & 0o077, 0);
    sandbox.stop(&fixture.journal).expect("stopped");
}

#[test]
fn a_taken_port_makes_the_sandbox_take_the_next() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("port");
    let held = (33002..).step_by(8).find_map(|p| TcpListener::bind((Ipv4Addr::LOCALHOST, p)).ok());
    let held = held.expect("a free port");
    let port = held.local_addr().expect("bound").port();
    let sandbox = Sandbox::start(&fixture.spec(), &fixture.journal).expect("started");
    assert!(sandbox.port() != port && sandbox.port() % 8 == 2);

    let given = SandboxSpec { port: Some(port), ..fixture.spec() };
    let refused = format!("{:#}", Sandbox::start(&given, &fixture.journal).expect_err("taken"));
    assert!(refused.contains("is taken"), "{refused}");
    sandbox.stop(&fixture.journal).expect("stopped");
    fixture.assert_clean();
}

#[test]
fn a_server_that_does_not_start_is_reported_with_its_last_words_and_leaves_nothing() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("broken");
    let spec = SandboxSpec { settings: vec!["innodb_nonsense=1".into()], ..fixture.spec() };
    let error = format!("{:#}", Sandbox::start(&spec, &fixture.journal).expect_err("refused"));
    assert!(error.contains("unknown variable 'innodb_nonsense=1'"), "{error}");
    fixture.assert_clean();
}

#[test]
fn a_missing_or_foreign_server_program_is_named_with_the_option_to_change() {
    for (program, expected) in
        [("/nowhere/mariadbd", "--server-bin"), ("/bin/true", "is it mariadbd or mysqld?")]
    {
        let error = format!("{:#}", ServerProgram::find(Some(Path::new(program))).expect_err("refused"));
        assert!(error.contains(expected), "{error}");
    }
}

fn data(seed: u64) -> DatasetSpec {
    DatasetSpec { key: format!("few-{seed}"), bytes: 64 << 20, what: "a few rows".into() }
}

#[test]
fn data_is_loaded_once_and_cloned_afterwards() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("cache");
    let data = &data(7);
    let load = |target: &toll_mysql::Target| {
        let mut connection = Connection::connect(target)?;
        ["create database d", "create table d.t (a int primary key)", "insert into d.t values (42)"]
            .into_iter()
            .try_for_each(|statement| connection.exec_drop(statement))?;
        Ok(())
    };
    let first =
        Sandbox::start_prepared(&fixture.spec(), data, &fixture.journal, &|_| {}, load).expect("loaded");
    assert_eq!(scalar(&first.target(), "select a from d.t"), "42");
    // What one run does to its clone, no other run sees.
    scalar(&first.target(), "delete from d.t");
    first.stop(&fixture.journal).expect("stopped");

    let never = |_: &toll_mysql::Target| anyhow::bail!("loaded again");
    let second =
        Sandbox::start_prepared(&fixture.spec(), data, &fixture.journal, &|_| {}, never).expect("cloned");
    assert_eq!(scalar(&second.target(), "select a from d.t"), "42");
    second.stop(&fixture.journal).expect("stopped");

    let kept = fixture.entries("prepared");
    assert_eq!(kept.len(), 2, "an entry and its lock: {kept:?}");
    assert_eq!(kept[1], format!("{}.lock", kept[0]));

    let other = &self::data(8);
    let error = Sandbox::start_prepared(&fixture.spec(), other, &fixture.journal, &|_| {}, never);
    assert!(format!("{:#}", error.expect_err("another seed is other data")).contains("loaded again"));
    fixture.assert_clean();
}

#[test]
fn a_load_that_fails_leaves_no_half_made_entry() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("half");
    let data = &data(1);
    let fail = |_: &toll_mysql::Target| anyhow::bail!("interrupted");
    let error =
        Sandbox::start_prepared(&fixture.spec(), data, &fixture.journal, &|_| {}, fail).expect_err("failed");
    assert!(format!("{error:#}").contains("interrupted"));
    let kept = fixture.entries("prepared");
    assert!(kept.iter().all(|name| name.ends_with(".lock")), "{kept:?}");
    fixture.assert_clean();
}

#[test]
fn two_at_once_load_the_data_once() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("together");
    let (bench, loads) = (&fixture, &std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(move || {
                let run_id = format!("{}-{number}", bench.journal.run_id());
                let journal =
                    Journal::begin_in(&bench.dir.path().join("journal"), &run_id).expect("a journal");
                let data = &data(1);
                let load = |target: &toll_mysql::Target| {
                    loads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    Connection::connect(target)?.exec_drop("create database made_once")?;
                    Ok(())
                };
                let sandbox =
                    Sandbox::start_prepared(&bench.spec(), data, &journal, &|_| {}, load).expect("started");
                scalar(&sandbox.target(), "use made_once");
                sandbox.stop(&journal).expect("stopped");
                assert!(journal.undo_all().failures.is_empty());
            });
        }
    });
    assert_eq!(loads.load(std::sync::atomic::Ordering::Relaxed), 1);
    bench.assert_clean();
}

/// A server deletes what look like left-over temporary tables in its tmpdir when it starts, so a shared
/// one would cost other servers of the host theirs.
#[test]
fn no_start_touches_the_temporary_tables_of_another_server() {
    if !have_server(None) {
        return;
    }
    let fixture = SandboxFixture::new("tmpdir");
    let theirs = std::env::temp_dir().join(format!("#sql-temptable-toll-{}.MAI", std::process::id()));
    std::fs::write(&theirs, "in use").expect("written");
    let sandbox = Sandbox::start(&fixture.spec(), &fixture.journal).expect("started");
    let survived = theirs.exists();
    sandbox.stop(&fixture.journal).expect("stopped");
    std::fs::remove_file(&theirs).expect("survived");
    assert!(survived);
}

/// Set `TOLL_TEST_MYSQLD` to a `mysqld` of MySQL 8 to run this.
#[test]
fn system_mysql_8_starts_like_mariadb() {
    let Some(program) = std::env::var_os("TOLL_TEST_MYSQLD").map(std::path::PathBuf::from) else {
        toll_testkit::skip!("TOLL_TEST_MYSQLD does not name a mysqld");
        return;
    };
    let fixture = SandboxFixture::new("mysql");
    let spec = SandboxSpec {
        program: Some(program),
        performance_schema: true,
        start_timeout: Duration::from_secs(120),
        ..fixture.spec()
    };
    let sandbox = Sandbox::start(&spec, &fixture.journal).expect("started");
    assert_eq!(sandbox.flavour(), Flavour::Mysql);
    assert_eq!(scalar(&sandbox.target(), "select version()"), sandbox.version().to_string());
    assert_eq!(scalar(&sandbox.unix_target(), "select @@performance_schema"), "1");
    assert_eq!(sandbox.port() % 8, 2);
    sandbox.stop(&fixture.journal).expect("stopped");
    fixture.assert_clean();
}
