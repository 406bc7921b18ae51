//! Machines that are really started. Each takes some seconds of CPU time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toll_journal::Journal;
use toll_sys::cancel::CancelToken;
use toll_sys::process;
use toll_testkit::{HANG_TIMEOUT, skip};
use toll_vm::{Kit, Machine, MachineEnd, MachineEvent, MachineSpec};

/// Writes how many microseconds of its own clock a piece of work takes, for bash. It reads no file, for which it would
/// wait.
const COUNT: &str = "for word in warmed counted; do b=${EPOCHREALTIME/./}; i=0; \
                     while [ $i -lt 10000 ]; do i=$((i + 1)); done; echo $word $((${EPOCHREALTIME/./} - b)); done";

/// Kernels that tests have unpacked, kept for the next time.
fn kit() -> Option<Kit> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    if let Some(part) = Kit::missing(&cache).first() {
        skip!("{}: {}", part.what, part.remedy);
        return None;
    }
    match Kit::prepare(None, &cache, &CancelToken::new(), &|words| println!("{words}")) {
        Ok(kit) => Some(kit),
        Err(error) if format!("{error:#}").contains("cannot download") => {
            skip!("{error:#}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

struct Place {
    dir: tempfile::TempDir,
    journal: Journal,
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_id = format!("vm-{name}-{}", std::process::id());
        let journal = Journal::begin_in(&dir.path().join("journal"), &run_id).unwrap();
        std::fs::create_dir(dir.path().join("shared")).unwrap();
        Self { dir, journal }
    }

    fn shared(&self) -> PathBuf {
        self.dir.path().join("shared")
    }

    fn start(&self, kit: &Kit, script: &str) -> Machine<'_> {
        let shared = self.shared();
        let spec = MachineSpec {
            name: "virtual machine of a test".into(),
            memory_bytes: 512 << 20,
            shared_dir: &shared,
            command: ["sh", "-c", script].map(String::from).to_vec(),
            dir: shared.clone(),
            env: vec![("GREETING".into(), "it's \"here\" & $HOME".into())],
        };
        Machine::start(kit, &spec, &self.journal).unwrap()
    }

    /// Nothing of the machine is left, and nothing to undo.
    fn assert_is_empty(&self) {
        assert_eq!(process::find_by_run_id(self.journal.run_id(), &[]), []);
        let undone = self.journal.undo_all();
        assert!(undone.actions.is_empty() && undone.failures.is_empty(), "{undone:?}");
    }
}

/// Lines until one that begins so, or until the end.
fn lines_until(machine: &mut Machine<'_>, start: &str) -> (Vec<String>, Option<MachineEnd>) {
    let (mut lines, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < HANG_TIMEOUT {
        match machine.next_event(Duration::from_millis(100)) {
            Some(MachineEvent::Line(line)) => {
                let is_last = line.starts_with(start);
                lines.push(line);
                if is_last {
                    return (lines, None);
                }
            }
            Some(MachineEvent::Ended(end)) => return (lines, Some(end)),
            None => {}
        }
    }
    panic!("the machine hangs: {lines:#?}");
}

fn counted(lines: &[String]) -> f64 {
    let count = lines.iter().find_map(|line| line.strip_prefix("counted "));
    count.unwrap_or_else(|| panic!("no count: {lines:#?}")).parse().unwrap()
}

#[test]
fn system_a_machine_runs_a_command_on_the_hosts_root_and_counts_the_same_twice() {
    let Some(kit) = kit() else { return };
    let place = Place::new("run");
    // The machine's own root, devices, control groups, modules and network; then the work; then a status.
    let script = format!(
        "{COUNT}; echo \"greeting: $GREETING\"; uname -r; pwd; head -c 3000000 /dev/zero >zeros; \
         touch /usr/touched && cp /proc/mounts mounts; cat /sys/fs/cgroup/cgroup.subtree_control; \
         head -n 1 <(echo substituted) 2>/dev/null || head -n 1 /dev/fd/0; \
         ip link add toll0 type veth peer name toll1 && echo veth; ls /sys/kernel/tracing/trace; \
         printf 'no end'; exit 3"
    );
    let script = format!("exec bash -c {}", shell_words::quote(&script));
    let begun = Instant::now();
    let mut first = place.start(&kit, &script);
    let (lines, _) = lines_until(&mut first, "counted ");
    println!("until the command has run: {:.1} s of CPU, {:?}", first.cpu_s(), begun.elapsed());
    let count = counted(&lines);
    let (lines, end) = lines_until(&mut first, "never");
    let all = lines.join("\n");

    assert!(all.contains("greeting: it's \"here\" & $HOME"), "{all}");
    assert!(lines.iter().any(|line| line == kit.kernel_version()), "{all}");
    assert!(lines.iter().any(|line| Path::new(line) == place.shared()), "{all}");
    // Without `cpu`: groups would share the machine's CPU out.
    for word in ["\nio memory pids\n", "substituted", "veth", "/sys/kernel/tracing/trace"] {
        assert!(all.contains(word), "{word}: {all}");
    }
    assert!(!all.contains("cannot start") && !all.contains("toll-status"), "{all}");
    assert_eq!(lines.last().map(String::as_str), Some("no end"));
    let end = end.unwrap();
    assert_eq!((end.status, end.console.last().map(String::as_str)), (Some(3), Some("no end")));
    assert_eq!(first.next_event(Duration::ZERO), Some(MachineEvent::Ended(end)));
    assert!(first.cpu_s() > 0.5, "{}", first.cpu_s());
    // Its files are here, its root was its own.
    assert_eq!(std::fs::metadata(place.shared().join("zeros")).unwrap().len(), 3_000_000);
    assert!(!Path::new("/usr/touched").exists());
    let mounts = std::fs::read_to_string(place.shared().join("mounts")).unwrap();
    for mount in ["overlay / ", "tmpfs /dev/shm ", "bpf /sys/fs/bpf ", "debugfs /sys/kernel/debug "] {
        assert!(mounts.contains(mount), "{mount}: {mounts}");
    }
    drop(first);

    let mut second =
        place.start(&kit, &format!("bash -c {}; exec sleep infinity", shell_words::quote(COUNT)));
    let (lines, end) = lines_until(&mut second, "counted ");
    assert_eq!(end, None, "{lines:#?}");
    let again = counted(&lines);
    println!("counted {count} and {again}");
    assert!((again / count - 1.0).abs() < 0.003, "{count} and {again} instructions");
    assert!(!process::find_by_run_id(place.journal.run_id(), &[]).is_empty());
    second.kill();
    assert_eq!(process::find_by_run_id(place.journal.run_id(), &[]), []);
    let (_, end) = lines_until(&mut second, "never");
    assert_eq!(end.unwrap().status, None);
    place.assert_is_empty();
}

#[test]
fn system_a_machine_outlives_the_thread_that_started_it_and_leaves_nothing_when_dropped() {
    let Some(kit) = kit() else { return };
    let place = Place::new("drop");
    let start = || place.start(&kit, "exec sleep infinity");
    let machine = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(process::find_by_run_id(place.journal.run_id(), &[]).len(), 1);
    assert!(machine.cpu_s() > 0.0);
    drop(machine);
    place.assert_is_empty();
}

/// Names the run whose machine this process starts and waits with.
const VICTIM: &str = "TOLL_TEST_VM_VICTIM";

#[test]
fn system_a_machine_ends_with_the_process_that_started_it() {
    let Some(kit) = kit() else { return };
    if let Ok(name) = std::env::var(VICTIM) {
        let place = Place::new(&name);
        let _machine = place.start(&kit, "exec sleep infinity");
        std::thread::sleep(HANG_TIMEOUT);
        return;
    }
    let name = format!("victim-{}", std::process::id());
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "system_a_machine_ends_with_the_process_that_started_it"])
        .env(VICTIM, &name)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let run_id = format!("vm-{name}-{}", victim.id());
    let begun = Instant::now();
    // Not what is about to become an emulator.
    let is_emulator = |id: &process::ProcessId| {
        let program = std::fs::read_link(format!("/proc/{}/exe", id.pid));
        program.is_ok_and(|path| path.ends_with("qemu-system-x86_64"))
    };
    while !process::find_by_run_id(&run_id, &[]).iter().any(is_emulator) {
        assert!(begun.elapsed() < HANG_TIMEOUT && victim.try_wait().unwrap().is_none(), "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let begun = Instant::now();
    while !process::find_by_run_id(&run_id, &[]).is_empty() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "its machine lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}
