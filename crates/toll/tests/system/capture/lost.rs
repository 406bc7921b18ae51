//! Tests of packets that are lost or cannot be written: counted where they were lost, with the rest complete.

use super::live::{Dir, LiveCapture, command, free_port, lacks, lacks_root, packets_in, read, send_query};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn run_ok(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_slow_disk_loses_in_the_queue_and_the_ledger_adds_up() {
    if lacks_root() || lacks("mkfifo") {
        return;
    }
    let dir = Dir::new();
    let (pipe, port) = (dir.path("pipe"), free_port("127.0.0.1"));
    run_ok("mkfifo", &[&pipe]);
    let (go, wait) = channel();
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || {
            let mut pipe = File::open(pipe).unwrap();
            wait.recv().unwrap();
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let capture = LiveCapture::start(&["-w", &pipe, "--port", &port.to_string()]);
    for _ in 0..5 {
        send_query(port, &vec![b'q'; 40 * MIB]);
    }
    // All that came is in the ring no more, and the queue is full.
    go.send(()).unwrap();
    let ended = capture.end();
    assert!(ended.status.success(), "{}", ended.said);
    let ledger = ended.ledger();
    let (queue, kernel) =
        (ledger["lost"]["queue"].as_u64().unwrap(), ledger["lost"]["kernel"].as_u64().unwrap());
    assert!(queue > 0 && ledger["lost"]["disk"] == 0, "{ledger}");
    assert!(ledger["first_loss_ns"].as_u64() <= ledger["last_loss_ns"].as_u64(), "{ledger}");
    let (packets, dropped) = packets_in(&reader.join().unwrap());
    assert_eq!(packets.len() as u64, ledger["captured"].as_u64().unwrap());
    assert_eq!(dropped, Some(queue + kernel));
}

#[test]
fn nobody_reads_what_it_says_and_it_captures_all_the_same() {
    if lacks_root() || lacks("mkfifo") {
        return;
    }
    let dir = Dir::new();
    let (file, words, port) = (dir.path("a.pcapng"), dir.path("words"), free_port("127.0.0.1"));
    run_ok("mkfifo", &[&words]);
    // Both ends, so that neither opening waits.
    let mut reader = BufReader::new(File::options().read(true).write(true).open(&words).unwrap());
    let stderr = File::options().write(true).open(&words).unwrap();
    let arguments = ["-w", &file, "--port", &port.to_string(), "--status", "--duration", "20s"];
    let mut capture = command(&[], &arguments).stderr(stderr).spawn().unwrap();
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let mut filler =
        File::options().write(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits()).open(&words).unwrap();
    while filler.write(b"x").is_ok() {}
    // So that it has something to say, and nobody to say it to.
    std::thread::sleep(Duration::from_secs(3));
    send_query(port, &[b'q'; 100_000]);
    let is_written = || std::fs::metadata(&file).unwrap().len() > 100_000;
    let waited = (0..100).any(|_| {
        is_written() || {
            std::thread::sleep(Duration::from_millis(100));
            false
        }
    });
    // The test's own end of the pipe; the capture may end now.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert!(capture.wait().unwrap().success());
    assert!(waited, "it waited for its reader");
}

#[test]
fn what_does_not_fit_into_the_ring_is_counted_as_the_kernels_loss_and_dated() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let (file, port) = (dir.path("a.pcapng"), free_port("127.0.0.1"));
    let now_ns = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let capture = LiveCapture::start(&["-w", &file, "--port", &port.to_string(), "--buffer", "2M"]);
    capture.signal("STOP");
    let before_ns = now_ns();
    send_query(port, &vec![b'q'; 20 * MIB]);
    capture.signal("CONT");
    let ended = capture.end();
    assert!(ended.status.success(), "{}", ended.said);
    let ledger = ended.ledger();
    let kernel = ledger["lost"]["kernel"].as_u64().unwrap();
    assert!(kernel > 0, "{ledger}");
    let [first, last] = ["first_loss_ns", "last_loss_ns"].map(|field| ledger[field].as_u64().unwrap());
    assert!(before_ns <= first && first <= last && last <= now_ns(), "{before_ns}: {ledger}");
    let (packets, dropped) = read(&file);
    assert_eq!((packets.len() as u64, dropped), (ledger["captured"].as_u64().unwrap(), Some(kernel)));
}

/// A small file system that fills quickly, removed with the test.
struct SmallDisk(String);

impl SmallDisk {
    fn mounted_at(place: String, size: &str) -> Self {
        std::fs::create_dir(&place).unwrap();
        run_ok("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", &place]);
        Self(place)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_capture_with_a_word_and_a_file_that_can_be_read() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let small = SmallDisk::mounted_at(dir.path("small"), "4m");
    let (file, port) = (format!("{}/a.pcapng", small.0), free_port("127.0.0.1"));
    let capture = LiveCapture::start(&["-w", &file, "--port", &port.to_string()]);
    send_query(port, &vec![b'q'; 8 * MIB]);
    let ended = capture.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said);
    let expected = format!("cannot write {file}: No space left on device");
    assert!(ended.said.contains(&expected) && ended.said.contains("Free space"), "{}", ended.said);
    let ledger = ended.ledger();
    assert!(
        ledger["lost"]["disk"].as_u64().unwrap() > 0 && ledger["captured"].as_u64().unwrap() > 0,
        "{ledger}"
    );
    let (packets, _) = read(&file);
    assert_eq!(packets.len() as u64, ledger["captured"].as_u64().unwrap());
}

#[test]
fn a_pipe_whose_reader_leaves_ends_the_capture_with_a_word() {
    if lacks_root() || lacks("mkfifo") {
        return;
    }
    let dir = Dir::new();
    let (pipe, port) = (dir.path("pipe"), free_port("127.0.0.1"));
    run_ok("mkfifo", &[&pipe]);
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || File::open(pipe).unwrap().read_exact(&mut [0; 28]).unwrap())
    };
    let capture = LiveCapture::start(&["-w", &pipe, "--port", &port.to_string()]);
    reader.join().unwrap();
    send_query(port, &vec![b'q'; 4 * MIB]);
    let ended = capture.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said);
    assert!(ended.said.contains("the reader has exited"), "{}", ended.said);
    ended.ledger();
}
