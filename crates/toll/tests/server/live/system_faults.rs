//! Faults while a method is on: whatever happens, it goes off, and nothing of it stays.
//!
//! `TOLL_LIVE_FAULTS` is how often each fault is injected; once if it is not set. The times from fault to off are printed.

use super::{Production, child_pids, guard_among, only_value, production, send_signal};
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use toll_testkit::lab::{ForeignServer, output_text};
use toll_testkit::small_disk::SmallDisk;

/// No ramp, and long stretches with the method on: none ends by itself before it is looked at.
const LONG: [&str; 10] = [
    "--time",
    "20m",
    "--window",
    "1s",
    "--guard-interval",
    "12s",
    "--baseline",
    "12s",
    "--probe-limit",
    "100ms",
];
/// A server or a process stands still for so long: the breaker acts after a second, and the server must answer to switch off.
const STANDSTILL: Duration = Duration::from_millis(1_500);
const MOST_S: f64 = 2.0;
/// A CPU that is full, or a replica that lags, is told from a burst after so long.
const BY_DESIGN_S: f64 = 2.0;

#[derive(Debug, Clone, Copy)]
enum Fault {
    KillToll,
    KillGuard,
    KillBoth,
    StopToll,
    StopGuard,
    StopServer,
    /// Of the table that the probe query reads.
    LockTable,
    /// All of toll's sessions are ended by the server, and somebody asks for the method to go off.
    DropConnections,
    FlagFile,
    CpuHog,
    /// Of the run's directory.
    FullDisk,
    /// Packets to and from the server wait in a slow link.
    Delay,
    ReplicaLag,
}

const FAULTS: [Fault; 13] = [
    Fault::KillToll,
    Fault::KillGuard,
    Fault::KillBoth,
    Fault::StopToll,
    Fault::StopGuard,
    Fault::StopServer,
    Fault::LockTable,
    Fault::DropConnections,
    Fault::FlagFile,
    Fault::CpuHog,
    Fault::FullDisk,
    Fault::Delay,
    Fault::ReplicaLag,
];

/// A server with a replica, in a network of their own: its loopback may be slowed down.
struct Site {
    at: Production,
    replica: ForeignServer,
    /// `None`: not as root, and packets cannot be delayed.
    disk: Option<SmallDisk>,
}

fn site() -> Site {
    // Of this thread, and of all that it starts.
    let has_network = unshare(CloneFlags::CLONE_NEWNET).is_ok();
    if has_network {
        succeed("ip", &["link", "set", "lo", "up"]);
    }
    let mut at = production();
    at.dsn = format!("mysql://root@127.0.0.1:{}/", at.server.port);
    let replica = at.lab.start_another_server("replica");
    replica.run(&format!(
        "SET GLOBAL server_id = 2; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root', \
         MASTER_USE_GTID = slave_pos; START SLAVE",
        at.server.port
    ));
    let position = only_value(&at.server.rows("SELECT @@GLOBAL.gtid_binlog_pos"));
    let waited = replica.rows(&format!("SELECT MASTER_GTID_WAIT('{position}', 60)"));
    assert_eq!(only_value(&waited), "0", "the replica does not follow");
    let disk = has_network.then(|| SmallDisk::mount(at.lab.path("disk"), "4G")).flatten();
    if disk.is_none() {
        toll_testkit::skip!("full disk and delayed packets: not as root");
    }
    Site { at, replica, disk }
}

fn succeed(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

struct Run<'a> {
    at: &'a Production,
    toll: Child,
    guard: u32,
    control: String,
    flag: String,
}

#[test]
fn whatever_happens_the_method_goes_off_and_nothing_stays() {
    let times: u32 = std::env::var("TOLL_LIVE_FAULTS").map_or(1, |times| times.parse().expect("a number"));
    let site = site();
    let at = &site.at;
    let before = [at.server.schemas(), at.server.variables()];
    let mut seconds = Vec::new();
    at.with_users(|| {
        for round in 0..times {
            for fault in FAULTS {
                if let Some(s) = inject(&site, fault, round) {
                    println!("{fault:?}: off after {s:.2} s");
                    seconds.push(s);
                }
                let cleaned = at.lab.toll(&["clean"]);
                assert!(cleaned.status.success(), "{fault:?}: {}", output_text(&cleaned));
                assert!(!at.is_on(), "{fault:?}: still on after toll clean");
                assert_eq!([at.server.schemas(), at.server.variables()], before, "{fault:?}");
                at.lab.assert_nothing_left();
            }
        }
    });
    seconds.sort_by(f64::total_cmp);
    let p99 = seconds[(seconds.len() * 99).div_ceil(100) - 1];
    println!(
        "{} faults: off after {:.2} s (median), {p99:.2} s (p99)",
        seconds.len(),
        seconds[seconds.len() / 2]
    );
    assert!(p99 <= MOST_S, "{seconds:?}");
}

/// Seconds from the fault until the method is off. `None`: nobody is left who could switch it off, or a host that was full
/// before has no limit that it could pass.
fn inject(site: &Site, fault: Fault, round: u32) -> Option<f64> {
    let at = &site.at;
    let name = format!("{fault:?}-{round}");
    let (out, control, flag) =
        (at.lab.path(&name), at.lab.path(&format!("{name}.sock")), at.lab.path(&format!("{name}.flag")));
    let replica = format!("replica={}", site.replica.dsn());
    let more = ["--control", &control, "--flag-file", &flag, "--watch-replica", &replica];
    let out = match (fault, &site.disk) {
        (Fault::FullDisk, Some(disk)) => disk.path().join(&name).to_str().unwrap().to_owned(),
        (Fault::FullDisk | Fault::Delay, None) => return None,
        _ => out,
    };
    let toll = at.spawn_for(&LONG, &out, &more);
    let guard = guard_among(&child_pids(toll.id()));
    let mut run = Run { at, toll, guard, control, flag };
    let begun = Instant::now();
    let off_s = match fault {
        Fault::KillToll => run.with_signal(&[run.toll.id()], "KILL", begun),
        Fault::KillGuard => run.with_signal(&[run.guard], "KILL", begun),
        Fault::KillBoth => {
            send_signal(run.toll.id(), "KILL");
            send_signal(run.guard, "KILL");
            None
        }
        Fault::StopToll => run.with_standstill(run.toll.id(), begun),
        Fault::StopGuard => run.with_standstill(run.guard, begun),
        Fault::StopServer => {
            at.server.signal("STOP");
            std::thread::sleep(STANDSTILL);
            at.server.signal("CONT");
            run.off_after(begun)
        }
        Fault::LockTable => std::thread::scope(|scope| {
            scope.spawn(|| at.server.run("LOCK TABLES shop.items WRITE; SELECT SLEEP(2.5); UNLOCK TABLES"));
            run.off_after(begun)
        }),
        Fault::DropConnections => {
            at.end_tolls_sessions();
            let begun = Instant::now();
            assert!(run.ask("panic").contains("goes off"));
            run.off_after(begun)
        }
        Fault::FlagFile => {
            std::fs::write(&run.flag, "").unwrap();
            run.off_after(begun)
        }
        Fault::CpuHog => run.with_hogs(begun),
        Fault::FullDisk => {
            let disk = site.disk.as_ref().unwrap();
            disk.resize("8M");
            // As much as there is room for.
            let _ = std::fs::write(disk.path().join("full"), vec![1; 8 << 20]);
            let off_s = run.off_after(begun);
            disk.resize("4G");
            std::fs::remove_file(disk.path().join("full")).unwrap();
            off_s
        }
        Fault::Delay => {
            // Less than the guard itself needs: packets wait longer and longer.
            let slow = ["rate", "64kbit", "burst", "1540", "latency", "10s"];
            succeed("tc", &[&["qdisc", "add", "dev", "lo", "root", "tbf"][..], &slow].concat());
            let off_s = run.off_after(begun);
            succeed("tc", &["qdisc", "del", "dev", "lo", "root"]);
            off_s
        }
        Fault::ReplicaLag => run.with_lag(&site.replica, begun),
    };
    run.end(fault);
    assert!(
        !Path::new(&run.control).exists() || matches!(fault, Fault::KillGuard | Fault::KillBoth),
        "{fault:?}"
    );
    off_s
}

impl Run<'_> {
    fn off_after(&self, begun: Instant) -> Option<f64> {
        self.at.assert_off();
        Some(begun.elapsed().as_secs_f64())
    }

    fn with_signal(&self, pids: &[u32], signal: &str, begun: Instant) -> Option<f64> {
        pids.iter().for_each(|pid| send_signal(*pid, signal));
        self.off_after(begun)
    }

    /// Whoever stands still goes on later, and must not undo or do anything twice.
    fn with_standstill(&self, pid: u32, begun: Instant) -> Option<f64> {
        send_signal(pid, "STOP");
        let off_s = self.off_after(begun);
        send_signal(pid, "CONT");
        off_s
    }

    fn with_hogs(&self, begun: Instant) -> Option<f64> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut hogs: Vec<Child> = (0..8 * cpus)
            .map(|_| {
                Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap()
            })
            .collect();
        while self.at.is_on() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let off_s = (!self.at.is_on()).then(|| begun.elapsed().as_secs_f64());
        for hog in &mut hogs {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
        if off_s.is_none() {
            println!("{}", self.ask("status").trim());
        }
        off_s.map(|s| (s - BY_DESIGN_S).max(0.0))
    }

    /// The replica applies nothing while users write.
    fn with_lag(&self, replica: &ForeignServer, begun: Instant) -> Option<f64> {
        std::thread::scope(|scope| {
            scope.spawn(|| replica.run("FLUSH TABLES WITH READ LOCK; SELECT SLEEP(8)"));
            scope.spawn(|| {
                while begun.elapsed() < Duration::from_secs(8) {
                    self.at.server.run("UPDATE shop.items SET name = UUID_SHORT() WHERE id = 1");
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            self.off_after(begun).map(|s| (s - BY_DESIGN_S).max(0.0))
        })
    }

    fn ask(&self, word: &str) -> String {
        let mut client = UnixStream::connect(&self.control).unwrap();
        client.write_all(format!("{word}\n").as_bytes()).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        said
    }

    /// The run has ended, or is asked to.
    fn end(&mut self, fault: Fault) {
        if matches!(fault, Fault::CpuHog) {
            send_signal(self.toll.id(), "INT");
        }
        let status = self.toll.wait().unwrap();
        assert!(!status.success(), "{fault:?}");
        let guard = self.guard;
        self.at.wait_until("without a guard", || !Path::new(&format!("/proc/{guard}")).exists());
    }
}
