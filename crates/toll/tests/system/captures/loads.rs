//! Tests that a capture holds every statement that `toll load` reports.

use super::server::Server;
use super::{loss, printed};
use toll_digest::Type;
use toll_digest::count::{CountWindow, count_queries};
use toll_load::summary::Summary;
use toll_testkit::wire::EventCollector;
use toll_wire::event::CommandKind;

#[derive(Debug)]
struct Load {
    connections: u64,
    prepared: bool,
    compressed: bool,
}

const LOADS: [Load; 6] = [
    Load { connections: 8, prepared: false, compressed: false },
    Load { connections: 8, prepared: true, compressed: false },
    Load { connections: 64, prepared: false, compressed: false },
    Load { connections: 64, prepared: true, compressed: false },
    Load { connections: 8, prepared: false, compressed: true },
    Load { connections: 8, prepared: true, compressed: true },
];

impl Load {
    fn options(&self) -> Vec<String> {
        // At a pace that a capture can follow on a busy host: what is asked is whether all is there.
        let mut options = vec![
            "read-only".into(),
            "--time=1s".into(),
            "--rate=300".into(),
            format!("--threads={}", self.connections),
        ];
        if !self.prepared {
            options.push("--text".into());
        }
        if self.compressed {
            options.push("--compress=zlib".into());
        }
        options
    }

    fn assert_complete(&self, events: &EventCollector, said: &Summary) {
        let of = |kind| events.list.iter().filter(|event| event.kind == kind).count() as u64;
        let named = |text: &str| events.list.iter().filter(|event| event.text == text).count() as u64;
        let (texts, executed) = (of(CommandKind::Query), of(CommandKind::Execute));
        assert_eq!(texts + executed, said.statements, "{self:?}");
        // To prepare, to connect and to part is no statement of a load.
        let prepares = of(CommandKind::Prepare);
        assert_eq!((executed > 0, prepares > 0), (self.prepared, self.prepared), "{self:?}");
        assert_eq!(prepares % self.connections, 0, "{self:?}");
        let ends = (named("administrator command: Connect"), named("administrator command: Quit"));
        assert_eq!(ends, (self.connections, self.connections), "{self:?}");
        assert_eq!(events.list.len() as u64, said.statements + prepares + 2 * self.connections, "{self:?}");
        let (commands, sessions) = (events.ledger.commands, events.ledger.sessions);
        assert_eq!(commands.complete, commands.seen, "{self:?}");
        let understood = if self.compressed { sessions.compressed } else { sessions.plain };
        assert_eq!((sessions.seen, understood), (self.connections, self.connections), "{self:?}");
    }
}

fn every_statement_is_there(server: &Server) {
    for load in &LOADS {
        let (capture, said) = server.capture_while(|| server.load(&load.options()));
        assert_eq!(said.errors, 0, "{load:?}: {:?}", said.messages);
        assert!(said.statements > 500, "{load:?}: too little to tell anything");
        let whole = EventCollector::decode_with(&capture, &server.config());
        load.assert_complete(&whole, &said);
        let file = server.capture_file();
        let digest = printed::digest(&file, server.port());
        assert_eq!(digest["totals"]["queries"], said.statements, "{load:?}");
        assert_eq!(digest["totals"]["tainted"], 0, "{load:?}");
        assert_eq!(digest["ledger"]["adds_up"], true, "{load:?}");
        let queries =
            |window| count_queries(&file, Some(Type::Pcap), window, &[server.port()]).unwrap().queries;
        assert_eq!(queries(CountWindow::Whole), said.statements, "{load:?}");
        let middle_ns = whole.list[whole.list.len() / 2].start_ns;
        let before = queries(CountWindow::Time { since_ns: 0, until_ns: middle_ns });
        let after = queries(CountWindow::Time { since_ns: middle_ns, until_ns: u64::MAX });
        assert!(before > 0 && after > 0, "{load:?}: {before} and {after}");
        assert_eq!(before + after, said.statements, "{load:?}");
        loss::one_packet_of_a_hundred(&capture, &whole, &server.config(), &format!("{load:?}"));
    }
}

#[test]
fn a_capture_holds_the_statements_that_toll_load_counts() {
    let Some(server) = Server::installed(&["tcpdump"], &[]) else { return };
    every_statement_is_there(&server);
}

#[test]
fn a_capture_of_mysql_holds_the_statements_that_toll_load_counts() {
    let Some(server) = Server::mysql(&["tcpdump"], &[]) else { return };
    every_statement_is_there(&server);
}
