//! Tests of capture errors, which name the missing requirement, and of dropped privileges once all is open.

use super::live::{Dir, LiveCapture, TOLL, free_port, lacks, lacks_root, read, send_query};
use std::os::unix::fs::{MetadataExt, chown};
use std::process::{Command, Output, Stdio};

fn capture(arguments: &[&str]) -> Output {
    super::live::command(&[], arguments).output().unwrap()
}

#[track_caller]
fn assert_says(output: &Output, code: i32, text: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(code) && said.contains(text), "{:?}: {said}", output.status);
}

#[test]
fn without_the_right_to_a_packet_socket_it_says_which_is_lacking_and_leaves_no_file() {
    if lacks_root() || lacks("setpriv") {
        return;
    }
    let dir = Dir::new();
    let file = dir.path("a.pcapng");
    let output = Command::new("setpriv")
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", TOLL, "capture", "-w", &file])
        .output()
        .unwrap();
    assert_says(
        &output,
        1,
        "cannot open a packet socket (operation not permitted): run as root, or give the binary",
    );
    assert_says(&output, 1, "setcap cap_net_raw+ep");
    assert_eq!(dir.files().len(), 0);
}

#[test]
fn wrong_arguments_are_named() {
    let dir = Dir::new();
    let file = dir.path("a.pcapng");
    assert_says(&capture(&[]), 2, "Examples");
    assert_says(&capture(&["-i", "lo"]), 2, "--write");
    assert_says(&capture(&["-w", &file, "--digest"]), 2, "cannot be used with");
    assert_says(&capture(&["-w", &file, "--keep", "3"]), 2, "--rotate");
    assert_says(&capture(&["-w", &file, "--rotate", "5"]), 2, "write a size, a time or both: 1G, 5m, 1G,5m");
    assert_says(&capture(&["-w", &file, "--port", "0"]), 2, "--port");
    assert_says(&capture(&["-w", &file, "--buffer", "8K"]), 2, "write 1M to 4G");
    assert_says(&capture(&["-w", "-", "--json"]), 1, "standard output is used for the capture");
    let help = capture(&["--help"]);
    assert!(
        help.status.success()
            && String::from_utf8_lossy(&help.stdout).contains("toll capture -w queries.pcapng")
    );
    if lacks_root() {
        return;
    }
    assert_says(
        &capture(&["-w", &file, "-i", "no-such0"]),
        1,
        "there is no network device no-such0; there are",
    );
    let ports: Vec<String> = (1..=65).map(|port: u16| port.to_string()).collect();
    assert_says(&capture(&["-w", &file, "--port", &ports.join(",")]), 1, "name 1 to 64");
    assert_says(&capture(&["-w", &dir.path("none/a.pcapng")]), 1, "none/a.pcapng");
    assert_says(&capture(&["-w", &file, "--user", "no-such-user"]), 1, "there is no user no-such-user");
    assert_eq!(dir.files().len(), 0);
    std::fs::write(&file, "something").unwrap();
    assert_says(
        &capture(&["-w", &file]),
        1,
        "the file exists with 9 bytes. Choose another, or use --overwrite.",
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"something");
}

#[test]
fn a_file_is_written_over_where_that_is_said() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let (file, port) = (dir.path("a.pcapng"), free_port("127.0.0.1"));
    std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    let capture = LiveCapture::start(&["-w", &file, "--overwrite", "--port", &port.to_string()]);
    send_query(port, b"question");
    let captured = capture.end().assert_whole();
    assert_eq!(read(&file).0.len() as u64, captured);
}

/// A line of a process's status, equal for all its threads.
fn status(pid: u32, field: &str) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let found: Vec<(String, String)> = threads
        .filter_map(|thread| {
            let read = |name: &str| std::fs::read_to_string(thread.path().join(name)).ok();
            let (name, status) = (read("comm")?, read("status")?);
            let line = status.lines().find_map(|line| line.strip_prefix(field))?.trim_start_matches(':');
            Some((name, line.split_whitespace().next()?.to_owned()))
        })
        .collect();
    assert!(found.len() > 1, "it has threads: {found:?}");
    assert!(found.iter().all(|(_, value)| *value == found[0].1), "{field} differs by thread: {found:?}");
    found[0].1.clone()
}

#[test]
fn once_it_listens_it_has_no_rights_left_and_is_the_user_that_was_named() {
    if lacks_root() {
        return;
    }
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let dir = Dir::new();
    let place = dir.path("theirs");
    std::fs::create_dir(&place).unwrap();
    let (file, port) = (format!("{place}/a.pcapng"), free_port("127.0.0.1"));
    let port_text = port.to_string();
    // Strangers speak to the thread that gives metrics.
    let arguments = ["-w", &file, "--port", &port_text, "--user", "nobody", "--metrics", "0"];
    // Into a place that is not the user's nothing is written.
    let refused = super::live::command(&[], &arguments).stdin(Stdio::null()).output().unwrap();
    assert_says(&refused, 1, &format!("cannot write {file}"));

    chown(&place, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
    let capture = LiveCapture::start(&arguments);
    let pid = capture.pid();
    send_query(port, b"question");
    let found = ["CapEff", "CapPrm", "NoNewPrivs", "Seccomp", "Uid", "Gid"].map(|field| status(pid, field));
    let (uid, gid) = (nobody.uid.to_string(), nobody.gid.to_string());
    assert_eq!(found, ["0000000000000000", "0000000000000000", "1", "2", &uid, &gid]);
    assert!(capture.end().assert_whole() > 0);
    let meta = std::fs::metadata(&file).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (nobody.uid.as_raw(), 0o600));

    // Root that stays root may still write into others' directories, and nothing else.
    let own = LiveCapture::start(&["-w", &format!("{place}/b.pcapng"), "--port", &port_text]);
    assert_eq!(status(own.pid(), "CapEff"), "0000000000000002");
    assert!(own.end().status.success());
}

#[test]
fn a_user_with_the_one_right_may_capture_and_one_without_may_not_change_user() {
    if lacks_root() || lacks("setpriv") {
        return;
    }
    let dir = Dir::new();
    let place = dir.path("theirs");
    std::fs::create_dir(&place).unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let (uid, gid) = (nobody.uid.to_string(), nobody.gid.to_string());
    chown(&place, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
    let before = [
        "setpriv",
        "--reuid",
        &uid,
        "--regid",
        &gid,
        "--clear-groups",
        "--inh-caps=-all,+net_raw",
        "--ambient-caps=-all,+net_raw",
        "--bounding-set=-all,+net_raw",
    ];
    let (file, port) = (format!("{place}/a.pcapng"), free_port("127.0.0.1"));
    let capture = LiveCapture::start_by(&before, &["-w", &file, "--port", &port.to_string()]);
    assert_eq!(status(capture.pid(), "CapEff"), "0000000000000000");
    send_query(port, b"question");
    let captured = capture.end().assert_whole();
    assert_eq!(read(&file).0.len() as u64, captured);
    let root =
        super::live::command(&before, &["-w", &format!("{place}/b"), "--user", "root"]).output().unwrap();
    assert_says(&root, 1, "only root can go on as root");
}
