//! Tests of backups whose statements want more of the scratch server than to be loaded.

use super::wait_until;
use crate::lab::{Lab, output_text};
use std::path::Path;

/// Has the dump's last statements be these. `bodies`: among its routines.
fn program_that_adds(lab: &Lab, statements: &str, bodies: bool) -> String {
    let (add, pass) = if bodies { ("*--routines*", "*--version*") } else { ("*--order*", "*--version*") };
    let added = lab.write("added.sql", statements);
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in {pass}) exec mariadb-dump \"$@\";; {add}) ;; *) exec mariadb-dump \"$@\";; esac\n\
         mariadb-dump \"$@\" | sed -e '/^-- Dump completed/{{' -e 'r {added}' -e 'N' -e '}}' | \
         awk '/^-- Dump completed/ {{ last = $0; next }} {{ print }} END {{ print last }}'\n"
    );
    let program = lab.write("program", &script);
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    program
}

#[test]
fn no_statement_of_a_backup_writes_a_file_through_the_scratch_server() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("CREATE DATABASE shop");
    source.run("CREATE TABLE shop.t (a INT)");
    std::fs::create_dir(lab.path("open")).unwrap();
    std::fs::set_permissions(lab.path("open"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let planted = lab.path("open/planted");
    let log = format!("SET GLOBAL general_log_file = '{planted}'; SET GLOBAL general_log = 1");
    // Whoever views and routines run as has no more, whatever it is called.
    let routine = format!(
        "USE shop;\nDELIMITER ;;\nCREATE DEFINER=`root`@`localhost` PROCEDURE up() BEGIN {log}; END ;;\nDELIMITER ;\nCALL up();\n"
    );
    let outfile = format!("USE shop;\nSELECT 'x' INTO OUTFILE '{planted}';\n");
    let plugin = "INSTALL SONAME 'server_audit';\n".to_owned();
    let account = "CREATE USER x@localhost;\n".to_owned();
    for (number, (statements, bodies)) in
        [(log.clone() + ";\n", false), (routine, true), (outfile, false), (plugin, false), (account, false)]
            .into_iter()
            .enumerate()
    {
        let (program, store) = (program_that_adds(&lab, &statements, bodies), lab.path(&format!("{number}")));
        let arguments = ["backup", "--server", &source.dsn(), "--to", &store, "--dump-program", &program];
        lab.toll(&arguments);
        let refused = lab.toll(&["backup", "verify", "--from", &store]);
        let said = output_text(&refused);
        assert!(!refused.status.success() && said.contains("denied"), "{statements}: {said}");
        assert!(!Path::new(&planted).exists(), "{statements}");
    }
    lab.assert_nothing_left();
}

#[test]
fn the_scratch_server_of_root_runs_as_nobody_else_does() {
    let lab = toll_testkit::lab!();
    if !nix::unistd::geteuid().is_root() {
        toll_testkit::skip!("root's alone");
    }
    let source = lab.start_server();
    source.run("CREATE DATABASE shop");
    source.run("CREATE TABLE shop.t (a INT)");
    let program = program_that_adds(&lab, "DO SLEEP(5);\n", false);
    let store = lab.path("store");
    let arguments = ["backup", "--server", &source.dsn(), "--to", &store, "--dump-program", &program];
    lab.toll(&arguments);
    let words = lab.path("words");
    let mut verify = lab.spawn_with_stderr(&["backup", "verify", "--from", &store], &words);
    let mark = "TOLL_RUN=verify-";
    let owners = || -> Vec<u32> {
        let of = |pid: String| {
            let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&read("environ")).into_owned();
            let is_server = String::from_utf8_lossy(&read("cmdline")).contains("--defaults-file=")
                && String::from_utf8_lossy(&read("comm")).starts_with("mariadbd");
            let ours = environment.contains(mark) && environment.contains(&lab.path("state"));
            let status = String::from_utf8_lossy(&read("status")).into_owned();
            let uid =
                status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse();
            (is_server && ours).then_some(uid.ok()?)
        };
        let pids =
            std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().into_string().ok());
        pids.filter_map(of).collect()
    };
    wait_until("there is a scratch server", || !owners().is_empty() || verify.try_wait().unwrap().is_some());
    let owners = owners();
    assert!(verify.wait().unwrap().success(), "{}", std::fs::read_to_string(&words).unwrap());
    assert!(matches!(owners[..], [61_184..=65_519]), "{owners:?}");
    lab.assert_nothing_left();
}
