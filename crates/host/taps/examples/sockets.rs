//! Benchmark of the socket tap: events captured and resources used. Usage: `sockets PID
//! sockets|events|calls SECONDS`.
//!
//! The records go to the decoder. The last line of output is JSON.

#[path = "../../../instruments/agent/src/capture/socket_chunk.rs"]
mod socket_chunk;

use socket_chunk::to_socket_chunk;
use std::time::{Duration, Instant};
use toll_taps::sockets::{HookKind, SocketTap, SocketTapOptions, TapError};
use toll_wire::decoder::{Config, Decoder};
use toll_wire::event::{CommandKind, Event, Sink};

#[derive(Default)]
struct Count {
    statements: u64,
    others: u64,
}

impl Sink for Count {
    fn on_event(&mut self, event: &Event<'_>) {
        match event.kind {
            CommandKind::Query | CommandKind::Execute => self.statements += 1,
            _ => self.others += 1,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, hooks, seconds] = &arguments[..] else {
        return Err("which process, which hooks, how long?".into());
    };
    let hooks = match hooks.as_str() {
        "sockets" => HookKind::Sockets,
        "events" => HookKind::SocketEvents,
        "calls" => HookKind::SystemCalls,
        other => return Err(format!("hooks are sockets, events or calls, not {other}").into()),
    };
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let mut tap = SocketTap::open(&SocketTapOptions {
        hooks: Some(hooks),
        ..SocketTapOptions::for_server(pid.parse()?)
    })?;
    eprintln!("looking at {} by {}", tap.followed_sockets().join(", "), tap.hook_kind());
    let mut decoder = Decoder::new(&Config::default());
    let mut count = Count::default();
    while Instant::now() < until {
        let taken = tap.poll_records(Duration::from_millis(100), |record| {
            decoder.decode_socket_chunk(&to_socket_chunk(record), &mut count);
            Ok::<(), TapError>(())
        });
        if let Err(error) = taken {
            eprintln!("{error}");
            break;
        }
    }
    let counters = tap.counters();
    decoder.finish(&mut count);
    let used = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let us = |t: nix::sys::time::TimeVal| t.tv_sec() * 1_000_000 + t.tv_usec();
    println!(
        "{{\"passed\":{},\"taken\":{},\"lost\":{},\"left_out\":{},\"statements\":{},\"others\":{},\"tainted\":{},\"cpu_us\":{}}}",
        counters.passed,
        counters.delivered,
        counters.lost,
        counters.missed_runs,
        count.statements,
        count.others,
        decoder.accounting().commands.tainted,
        us(used.user_time()) + us(used.system_time())
    );
    Ok(())
}
