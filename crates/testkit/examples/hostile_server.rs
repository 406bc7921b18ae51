//! Serves one trick of `toll_testkit::hostile_server` to any client program, and prints what it got.
//!
//! `hostile_server TRICK [CERTIFICATES]` prints its port, then a line for each password that clients gave away, until
//! its input ends. TRICK is a plugin (`sha256_password`), `greet:PLUGIN`, `unasked-key:PLUGIN` or `endless-nulls`. With CERTIFICATES, a
//! directory with `server.pem` and `server.key`, it offers TLS.

use std::io::Read;
use std::process::ExitCode;
use toll_testkit::hostile_server::{HostileServer, Trick};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(trick) = arguments.next().and_then(|text| Trick::parse(&text)) else {
        eprintln!("hostile_server endless-nulls|[greet:|unasked-key:]PLUGIN [CERTIFICATES]");
        return ExitCode::from(2);
    };
    let server = match arguments.next() {
        Some(certificates) => HostileServer::start_with_tls(trick, certificates.as_ref()),
        None => HostileServer::start(trick),
    };
    println!("port {}", server.port());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let loot = server.loot();
    println!("connections {}", loot.connections);
    for password in loot.passwords {
        println!("password {password}");
    }
    ExitCode::SUCCESS
}
