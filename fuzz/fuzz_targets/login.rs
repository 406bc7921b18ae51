#![no_main]

//! Fuzz target of the client's login, and of a result behind it.
//!
//! A server may say what it likes: the client ends, and its password is in nothing that it sent in the clear.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use toll_mysql::{Connection, Secret, Target};

const PASSWORD: &str = "geheim-geheim";

/// With what a server of MySQL or MariaDB greets. An input is what comes behind it, or also that.
const GREETING: &[u8] = b"\x4a\0\0\0\x0a8.0.36\0\x01\0\0\0abcdefgh\0\x8f\xf3\x2d\x02\0\xff\xdf\x15\
    \0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0";

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok((client, mut server)) = UnixStream::pair() else { return };
    let Some((first, rest)) = input.split_first() else { return };
    // All of it lies in the socket before the client begins: nobody waits.
    let said = if first & 1 == 0 { [GREETING, rest].concat() } else { rest.to_vec() };
    if server.set_write_timeout(Some(Duration::from_millis(100))).is_err() || server.write_all(&said).is_err()
    {
        return;
    }
    let _ = server.shutdown(Shutdown::Write);
    // A server elsewhere, as far as the client knows.
    let target = Target { user: "u".into(), password: Secret::new(PASSWORD), ..Target::default() };
    if let Ok(mut connection) = Connection::over_socket(client.into(), &target) {
        let _ = connection.query("SELECT 1");
    }
    let mut sent = Vec::new();
    let _ = server.read_to_end(&mut sent);
    assert!(!sent.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()));
});
