//! Tests of the CPU budget on a simulated host with known costs, and of whole-connection sampling.

use super::*;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use toll_stats::SeededRng;
use toll_wire::packet_builder::{AddressPair, IpHeader, TcpHeader, append_tcp};
use toll_wire::pcap::Link;

/// A host with connections of different weight; what they cost is in parts of the budget.
struct Host {
    /// Where each connection's hash lies, and its part of the load.
    connections: Vec<(f64, f64)>,
    draws: SeededRng,
}

/// What a run came to.
struct Outcome {
    /// Windows of a second, beginning at each look.
    over: f64,
    used_mean: f64,
    kept: Vec<f64>,
}

const LOOKS_A_SECOND: usize = 20;

impl Host {
    fn new(connections: u32, seed: u64) -> Self {
        let mut draws = SeededRng::new(seed, 0);
        let weights: Vec<f64> = (0..connections).map(|_| -(1.0 - draws.next_fraction()).ln()).collect();
        let sum: f64 = weights.iter().sum();
        let connections = weights.into_iter().map(|weight| (draws.next_fraction(), weight / sum)).collect();
        Self { connections, draws }
    }

    /// `loads`: what all connections would cost, in budgets, for so many seconds each.
    fn run(&mut self, loads: &[f64], seconds: usize, budget: f64) -> Outcome {
        let mut controller = ShareController::new(budget);
        let look_ns = CHECK_INTERVAL_NS as f64;
        let (mut cpu_ns, mut owed_ns) = (0.0, 0.0);
        let mut spent = vec![0.0];
        let mut kept = Vec::new();
        for (at, load) in loads.iter().flat_map(|load| vec![load; seconds * LOOKS_A_SECOND]).enumerate() {
            let share: f64 = self
                .connections
                .iter()
                .filter(|(hash, _)| *hash < controller.share)
                .map(|(_, part)| part)
                .sum();
            let work_ns = load * budget * look_ns * (0.8 + 0.4 * self.draws.next_fraction());
            // A fifth is for compressing, twice a second; what is left out has to be looked at nevertheless.
            cpu_ns += work_ns * (share * 0.8 + (1.0 - share) * 0.02);
            owed_ns += work_ns * share * 0.2;
            if at % 10 == 9 {
                cpu_ns += std::mem::take(&mut owed_ns);
            }
            spent.push(cpu_ns);
            kept.push(controller.update((at as u64 + 1) * CHECK_INTERVAL_NS, cpu_ns as u64));
        }
        let windows: Vec<f64> =
            spent.windows(LOOKS_A_SECOND + 1).map(|part| part[LOOKS_A_SECOND] - part[0]).collect();
        let over = windows.iter().filter(|used| **used > budget * 1e9).count();
        Outcome {
            over: over as f64 / windows.len() as f64,
            used_mean: cpu_ns / (kept.len() as f64 * look_ns * budget),
            kept,
        }
    }
}

#[test]
fn the_budget_holds_in_nineteen_of_twenty_windows_whatever_the_load_does() {
    let loads = [0.5, 2.0, 10.0, 1.0, 5.0, 20.0, 3.0, 0.2, 8.0, 15.0];
    let mut over = Vec::new();
    for connections in [1000, 200, 40, 8] {
        for seed in 0..5 {
            let run = Host::new(connections, seed).run(&loads, 10, 0.05);
            over.push(run.over);
            // It is used, too: to look at nothing would keep any budget.
            assert!(run.used_mean > 0.25, "{connections}, {seed}: {}", run.used_mean);
        }
    }
    let mean = over.iter().sum::<f64>() / over.len() as f64;
    assert!(mean <= 0.05 && over.iter().all(|one| *one <= 0.08), "{over:?}");
}

#[test]
fn under_a_steady_load_the_budget_is_nearly_all_used_and_never_passed_for_long() {
    let run = Host::new(1000, 1).run(&[10.0], 60, 0.03);
    assert!(run.over <= 0.05, "{}", run.over);
    assert!((0.5..1.0).contains(&run.used_mean), "{}", run.used_mean);
    let late = &run.kept[30 * LOOKS_A_SECOND..];
    assert!(late.iter().all(|kept| (0.02..0.2).contains(kept)), "{late:?}");
}

#[test]
fn what_fits_is_kept_whole_and_what_fits_again_comes_back_whole() {
    let run = Host::new(100, 1).run(&[0.6], 30, 0.05);
    assert!(run.kept.iter().all(|kept| *kept == 1.0));
    let run = Host::new(100, 1).run(&[0.5, 20.0, 0.1], 40, 0.05);
    assert!(run.kept.iter().any(|kept| *kept < 0.1));
    assert_eq!(run.kept.last(), Some(&1.0));
}

#[test]
fn a_budget_that_cannot_be_kept_is_owned_up_to() {
    let mut controller = ShareController::new(0.01);
    // Whatever is kept, the rest of the process takes three times the budget.
    (1..2_000).for_each(|n| _ = controller.update(n * CHECK_INTERVAL_NS, n * CHECK_INTERVAL_NS * 3 / 100));
    assert!(controller.is_unattainable());
    assert!(controller.share >= MIN_SHARE);
}

/// What reached the output inside.
#[derive(Default)]
struct Received {
    packets: Vec<u16>,
    calls: Vec<u64>,
    shares: Vec<SampleShare>,
}

struct RecordingOutput(Rc<RefCell<Received>>);

impl CaptureOutput for RecordingOutput {
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let packet = frame::parse_segment(frame).unwrap();
        let port = if packet.destination_port == 3306 { packet.source_port } else { packet.destination_port };
        self.0.borrow_mut().packets.push(port);
        Ok(())
    }

    fn socket_chunk(&mut self, chunk: &SocketChunk<'_>) -> anyhow::Result<()> {
        self.0.borrow_mut().calls.push(chunk.socket);
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> anyhow::Result<()> {
        Ok(())
    }

    fn sample_share(&mut self, share: &SampleShare) {
        self.0.borrow_mut().shares.push(*share);
    }

    fn counters(&self) -> OutputCounters {
        OutputCounters { items: self.0.borrow().packets.len() as u64, ..OutputCounters::default() }
    }

    fn finish(&mut self, _now_ns: u64) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A packet of each of a thousand connections, to and from the server.
fn round(budgeted: &mut BudgetedOutput, time_ns: u64) {
    for port in 10_000..11_000 {
        for from_client in [true, false] {
            let ends = [SocketAddr::from(([10, 0, 0, 1], port)), SocketAddr::from(([10, 0, 0, 2], 3306))];
            let (source, destination) = if from_client { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
            let mut bytes = Vec::new();
            let head = TcpHeader { seq: 1, ack: 1, flags: 0x18, window: 0, options: &[] };
            append_tcp(
                &mut bytes,
                &IpHeader { addresses: AddressPair { source, destination }, ttl: 64, id: 0 },
                &head,
                b"x",
            );
            let wire_len = bytes.len() as u32;
            budgeted.packet(&Frame { time_ns, link: Link::Raw, wire_len, bytes: &bytes }).unwrap();
        }
    }
}

#[test]
fn connections_are_left_out_as_a_whole_both_ways_and_fewer_never_means_others() {
    let reached = Rc::new(RefCell::new(Received::default()));
    let mut budgeted = BudgetedOutput::new(Box::new(RecordingOutput(Rc::clone(&reached))), 0.05, &[3306]);
    budgeted.seed = 7;
    let mut kept_before: Option<Vec<u16>> = None;
    for (share, time_ns) in [(1.0_f64, 1), (0.5, 2), (0.1, 3)] {
        budgeted.threshold = (share * ALL_CONNECTIONS as f64) as u64;
        reached.borrow_mut().packets.clear();
        round(&mut budgeted, time_ns);
        let packets = reached.borrow().packets.clone();
        let mut ports = packets.clone();
        ports.dedup();
        assert_eq!(ports.len() * 2, packets.len(), "each in both directions");
        // Three standard deviations of so many draws.
        let (expected, deviation) = (share * 1000.0, (share * 1000.0 * (1.0 - share)).sqrt());
        assert!((ports.len() as f64 - expected).abs() <= 3.0 * deviation, "{}", ports.len());
        if let Some(before) = kept_before {
            assert!(ports.iter().all(|port| before.contains(port)));
        }
        kept_before = Some(ports);
    }
    let account = budgeted.counters();
    assert_eq!(account.items, account.shed + reached.borrow().packets.len() as u64);
    assert_eq!((account.first_loss_ns, account.last_loss_ns), (Some(2), Some(3)));
    // What clients asked is counted while not all are kept, and told at the end.
    budgeted.finish(9).unwrap();
    let told = reached.borrow().shares.last().copied().unwrap();
    assert_eq!((told.time_ns, told.requests.unwrap().total), (9, 2000));
    assert!(
        (told.fraction - 0.1).abs() < 1e-6 && (500..700).contains(&told.requests.unwrap().sampled),
        "{told:?}"
    );
    // Another capture draws others.
    let ports = reached.borrow().packets.clone();
    reached.borrow_mut().packets.clear();
    budgeted.seed ^= 1;
    round(&mut budgeted, 4);
    assert_ne!(reached.borrow().packets, ports);
}

#[test]
fn sockets_are_left_out_like_connections() {
    let reached = Rc::new(RefCell::new(Received::default()));
    let mut budgeted = BudgetedOutput::new(Box::new(RecordingOutput(Rc::clone(&reached))), 0.05, &[3306]);
    budgeted.seed = 7;
    budgeted.threshold = ALL_CONNECTIONS / 2;
    for _ in 0..2 {
        for socket in 0..1000 {
            budgeted.socket_chunk(&SocketChunk { socket, full_len: 1, ..SocketChunk::default() }).unwrap();
        }
    }
    let calls = reached.borrow().calls.clone();
    let (first, second) = calls.split_at(calls.len() / 2);
    assert_eq!(first, second);
    assert!((430..570).contains(&first.len()), "{}", first.len());
    assert_eq!(budgeted.counters().shed + calls.len() as u64, 2000);
    assert_eq!(budgeted.asked, RequestCounts { total: 2000, sampled: calls.len() as u64 });
}
