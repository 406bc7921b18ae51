//! Tests of synthetic captures with tshark and with a digest.

use super::own::{done, has, made, pcap as toll, printed, profile, text};
use super::printed::digest;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// tshark filter of faults; a sound capture has none.
const FAULTS: &str = "_ws.malformed || _ws.expert.severity >= \"Warning\" || ip.checksum.status == \"Bad\" || \
    tcp.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" || tcp.analysis.lost_segment || \
    tcp.analysis.ack_lost_segment || tcp.analysis.retransmission || tcp.analysis.out_of_order || \
    tcp.analysis.duplicate_ack || ip.len > 1500";

fn tshark_faults(file: &std::path::Path) -> String {
    let sums =
        ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    let arguments = [&["-n", "-r", text(file)][..], &sums, &["-Y", FAULTS]].concat();
    printed("tshark", &arguments)
}

#[test]
fn tshark_finds_no_fault_in_any_set() {
    if !has(&["tshark"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for set in ["http", "flash", "skype", "mixed", "mysql"] {
        for (seed, mbps) in [("1", "8"), ("2", "2"), ("77", "8")] {
            let file = made(dir.path(), set, &["--seconds", "4", "--mbps", mbps, "--seed", seed]);
            assert_eq!(tshark_faults(&file), "", "{set}, seed {seed}");
        }
    }
    // It would find one: a byte of the last packet is another.
    let file = made(dir.path(), "http", &["--seconds", "1"]);
    let mut capture = std::fs::read(&file).unwrap();
    *capture.last_mut().unwrap() ^= 1;
    std::fs::write(&file, &capture).unwrap();
    assert_eq!(tshark_faults(&file).lines().count(), 1);
}

#[test]
fn a_digest_reads_every_command_of_the_mysql_set() {
    let dir = tempfile::tempdir().unwrap();
    let file = made(dir.path(), "mysql", &["--seconds", "5", "--seed", "3"]);
    let digest = digest(&file, 3306);
    let capture = &digest["ledger"];
    let commands = &capture["commands"];
    assert!(commands["seen"].as_u64().unwrap() > 5_000, "{commands}");
    assert_eq!(commands["complete"], commands["seen"], "{commands}");
    assert_eq!(capture["sessions"]["plain"], capture["sessions"]["seen"]);
    assert_eq!(capture["frames"]["parsed"], capture["frames"]["read"]);
    let kinds: Vec<&str> = digest["classes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|class| class["fingerprint"].as_str())
        .collect();
    for kind in ["execute select", "execute update", "select id", "update items", "insert into"] {
        assert!(kinds.iter().any(|text| text.starts_with(kind)), "{kind}: {kinds:?}");
    }
    assert!(digest["totals"]["errors"].as_u64().unwrap() > 0);
}

#[test]
fn a_set_says_how_much_it_is_and_too_little_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.pcapng");
    let said = done(&["make", "skype", "--seconds", "2.5", "--mbps", "3", "-w", text(&out)]);
    let profile = profile(&out);
    let (packets, bytes) = (&profile["packets"], &profile["bytes"]);
    assert!(said.contains(&format!("{packets} packets, {bytes} bytes")), "{said}");
    assert_eq!(profile["inputs"][0]["type"], "pcapng");
    let wanted = 3e6 / 8.0 * 2.5;
    assert!((bytes.as_f64().unwrap() / wanted - 1.0).abs() < 0.02, "{bytes}");
    for (options, why) in [
        (["--seconds", "0.01", "--mbps", "1"], "hold no conversation"),
        (["--duration", "400d", "--mbps", "1"], "more than a year"),
        (["--seconds", "0", "--mbps", "1"], "above 0"),
        (["--seconds", "nan", "--mbps", "1"], "is not a duration"),
    ] {
        let none = dir.path().join("none.pcap");
        let refused = toll(&[&["make", "http", "-w", text(&none)], &options[..]].concat());
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stderr).contains(why), "{options:?}");
        assert!(!none.exists());
    }
}

#[test]
fn an_interrupt_leaves_what_was_there_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.pcap");
    std::fs::write(&out, "what was there").unwrap();
    // Two as one, as timeout(1) sends them: of one kind, the kernel may deliver them as one.
    for signals in [["-INT", "-TERM"], ["-TERM", "-INT"]] {
        // Longer than anyone waits.
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_toll"), "pcap", "make", "http"])
            .args(["--seconds", "1000000", "--mbps", "1", "-w", text(&out)])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while std::fs::read_dir(dir.path()).unwrap().count() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(300), "nothing is written");
            std::thread::sleep(Duration::from_millis(10));
        }
        for signal in signals {
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
            assert!(sent.success());
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{signals:?}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "what was there");
    }
}
