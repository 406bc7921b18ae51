//! Tests that an existing server is left unchanged. With a real server and real kills.

use std::collections::BTreeMap;
use std::process::Command;
use tempfile::TempDir;
use toll_journal::{CleanState, Credentials, Journal, ServerRef, Undo, clean};
use toll_mysql::{Connection, Target};
use toll_server::{ExternalServer, Sandbox};
use toll_sys::process::ProcessId;

/// An independent server, as far as the run under test can detect.
struct ExternalSandbox {
    dir: TempDir,
    journal: Journal,
    sandbox: Option<Sandbox>,
}

impl ExternalSandbox {
    fn start(name: &str) -> Option<Self> {
        if let Err(reason) = toll_server::ServerProgram::find(None) {
            toll_testkit::skip!("{reason:#}");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("toll-test-").tempdir().expect("a directory");
        let journal =
            Journal::begin_in(&dir.path().join("theirs"), &format!("theirs-{name}")).expect("a journal");
        let sandbox = Some(crate::sandbox(&journal));
        Some(Self { dir, journal, sandbox })
    }

    fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("running")
    }

    fn external(&self) -> ExternalServer {
        let file = self.sandbox().client_defaults();
        let target = Target::from_defaults_file(&file).expect("read");
        ExternalServer::connect(&target, Some(file)).expect("connected")
    }

    fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.external().variables().clone();
        // Moves by itself.
        variables.retain(|name, _| !name.starts_with("gtid_") && name != "timestamp");
        variables
    }

    fn run(&self, name: &str) -> Journal {
        Journal::begin_in(&self.dir.path().join("run"), name).expect("a journal")
    }

    fn clean(&self) -> Vec<CleanState> {
        let found = clean(&self.dir.path().join("run"), false, &Credentials::default()).expect("read");
        found.into_iter().map(|cleaned| cleaned.state).collect()
    }

    fn query(&self, sql: &str) -> String {
        let mut connection = Connection::connect(&self.sandbox().target()).expect("connected");
        connection.query(sql).expect(sql).scalar().unwrap_or_default().to_owned()
    }
}

impl Drop for ExternalSandbox {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.stop(&self.journal).expect("stopped");
        }
    }
}

/// Simulates a kill of the run that wrote this journal.
fn kill(journal: Journal) {
    let mut ended = Command::new("true").spawn().expect("true");
    let owner = ProcessId::from_pid(ended.id() as i32).expect("not yet reaped");
    ended.wait().expect("ended");
    journal.transfer_to(owner).expect("handed over");
}

fn change_settings(theirs: &ExternalSandbox, journal: &Journal) {
    journal
        .record(Undo::Settings {
            server: theirs.external().server().clone(),
            statements: vec![
                "SET GLOBAL slow_query_log = 'OFF'".into(),
                "SET GLOBAL long_query_time = 10.000000".into(),
            ],
            what: "settings of arm A".into(),
        })
        .expect("recorded");
    theirs.query("SET GLOBAL long_query_time = 0");
    theirs.query("SET GLOBAL slow_query_log = 'ON'");
}

#[test]
fn variables_changed_by_a_killed_run_are_as_before_after_clean() {
    let Some(theirs) = ExternalSandbox::start("variables") else { return };
    let before = theirs.variables();
    let journal = theirs.run("killed");
    change_settings(&theirs, &journal);
    assert_ne!(theirs.variables(), before);
    kill(journal);
    let states = theirs.clean();
    assert!(matches!(&states[..], [CleanState::Undone(undone)] if undone.failures.is_empty()), "{states:?}");
    assert_eq!(theirs.variables(), before);
    assert!(theirs.clean().is_empty());
}

#[test]
fn the_journal_holds_no_password_and_without_one_clean_says_how_to_give_it() {
    let Some(theirs) = ExternalSandbox::start("secret") else { return };
    let journal = theirs.run("secret");
    let target = theirs.sandbox().target();
    let statements = vec!["SET GLOBAL long_query_time = 10.000000".into()];
    let server = ServerRef::from_target(&target, None);
    journal.record(Undo::Settings { server, statements, what: "settings".into() }).expect("recorded");
    let file = theirs.dir.path().join("run/secret.ndjson");
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(!text.contains(target.password.expose()));
    kill(journal);

    let states = theirs.clean();
    let [CleanState::Undone(undone)] = &states[..] else { panic!("{states:?}") };
    assert!(undone.failures[0].contains("--server"), "{undone:?}");
    assert!(file.exists(), "kept, so that it can be tried again");

    let credentials = Credentials { login: Some(target), ..Credentials::default() };
    let again = clean(&theirs.dir.path().join("run"), false, &credentials).expect("read");
    assert!(matches!(&again[0].state, CleanState::Undone(undone) if undone.failures.is_empty()), "{again:?}");
    assert!(!file.exists());
}

#[test]
fn a_schema_that_toll_made_is_dropped_and_one_that_was_there_is_kept() {
    let Some(theirs) = ExternalSandbox::start("schema") else { return };
    let journal = theirs.run("schema");
    let external = theirs.external();
    theirs.query("CREATE DATABASE was_there");
    assert!(external.has_schema("was_there").expect("asked"));
    assert!(!external.has_schema("toll_`load").expect("asked"));
    assert!(external.create_schema("was_there", &journal).is_err());
    external.create_schema("toll_`load", &journal).expect("made");
    theirs.query("CREATE TABLE `toll_``load`.t (a int)");
    assert_eq!(journal.undo_all().failures, [""; 0]);
    let left = theirs.query("SELECT GROUP_CONCAT(schema_name) FROM information_schema.schemata WHERE schema_name LIKE 'toll%' OR schema_name = 'was_there'");
    assert_eq!(left, "was_there");
}

#[test]
fn a_schema_of_somebody_elses_that_holds_routines_or_events_alone_is_never_dropped() {
    let Some(theirs) = ExternalSandbox::start("bodies") else { return };
    let event = "EVENT e.e ON SCHEDULE EVERY 1 YEAR DO SET @x = 1";
    for (name, object) in [("p", "PROCEDURE p.p() SELECT 1"), ("e", event)] {
        theirs.query(&format!("CREATE DATABASE {name}"));
        theirs.query(&format!("CREATE {object}"));
        let journal = theirs.run(name);
        let (server, owner) = (theirs.external().server().clone(), Some(journal.run_id().to_owned()));
        journal.record(Undo::Schema { server, name: name.into(), owner, unlogged: false }).expect("recorded");
        let failures = journal.undo_all().failures;
        assert!(failures.concat().contains("is not the one that this run made"), "{failures:?}");
        assert!(theirs.external().has_schema(name).expect("asked"), "{name}");
    }
}

#[test]
fn a_server_that_restarted_meanwhile_is_put_back_without_complaint() {
    let Some(theirs) = ExternalSandbox::start("plugin") else { return };
    let journal = theirs.run("restarted");
    let server = theirs.external().server().clone();
    let statements =
        vec!["SET GLOBAL server_audit_logging = 'OFF'".into(), "UNINSTALL PLUGIN server_audit".into()];
    journal.record(Undo::Settings { server, statements, what: "audit".into() }).expect("recorded");
    assert_eq!(journal.undo_all().failures, [""; 0]);
}

#[test]
fn an_external_server_is_described_by_what_it_says() {
    let Some(theirs) = ExternalSandbox::start("described") else { return };
    let external = theirs.external();
    assert_eq!(external.flavour(), theirs.sandbox().flavour());
    assert_eq!(external.version(), theirs.sandbox().version());
    assert_eq!(external.port(), Some(theirs.sandbox().port()));
    assert_eq!(external.pid(), Some(theirs.sandbox().pid()));
    assert_eq!(external.describe().kind, "external");
}

#[test]
fn a_wrong_password_is_a_clear_error() {
    let Some(theirs) = ExternalSandbox::start("wrong") else { return };
    let target = Target { password: toll_mysql::Secret::new("wrong"), ..theirs.sandbox().target() };
    let error = format!("{:#}", ExternalServer::connect(&target, None).expect_err("refused"));
    assert!(error.contains("as toll") && error.contains("1045") && !error.contains("wrong"), "{error}");
}
