//! Fault-injecting proxy between toll and a real store.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    None,
    /// Returns this status, without a request to the store.
    Status(u16),
    /// The store receives the request; its answer is cut off.
    CutAnswer,
    /// The connection breaks after part of the request has reached the store.
    CutRequest,
    /// A delay before the request.
    Slow(Duration),
    /// Connections are not answered.
    Down,
}

pub struct Proxy {
    pub port: u16,
    pub requests: Arc<AtomicU64>,
    pub faults: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts the proxy. `choose` is called for each request, with its number.
    pub fn before(store_port: u16, choose: impl FnMut(u64) -> Fault + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, requests: Arc::default(), faults: Arc::default(), stop: Arc::default() };
        let (requests, faults, stop) = (proxy.requests.clone(), proxy.faults.clone(), proxy.stop.clone());
        let choose = Arc::new(Mutex::new(choose));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (requests, faults, choose) = (requests.clone(), faults.clone(), choose.clone());
                std::thread::spawn(move || {
                    // Whoever cuts a connection ends it here too.
                    let _ = serve(client, store_port, || {
                        let fault = (choose.lock().unwrap())(requests.fetch_add(1, Ordering::Relaxed));
                        faults.fetch_add(u64::from(fault != Fault::None), Ordering::Relaxed);
                        fault
                    });
                });
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Serves one request on each connection, so that each can fail separately.
fn serve(mut client: TcpStream, store_port: u16, choose: impl FnOnce() -> Fault) -> std::io::Result<()> {
    let mut request = Vec::new();
    let body_at = loop {
        let mut some = [0; 65536];
        let read = client.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&some[..read]);
        if let Some(at) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..body_at]).into_owned();
    let length: usize = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    while request.len() < body_at + length {
        let mut some = [0; 65536];
        let read = client.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&some[..read]);
    }
    let fault = choose();
    match fault {
        Fault::Down => return client.shutdown(Shutdown::Both),
        Fault::Slow(pause) => std::thread::sleep(pause),
        Fault::Status(status) => {
            let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return client.write_all(answer.as_bytes());
        }
        Fault::None | Fault::CutAnswer | Fault::CutRequest => {}
    }
    let mut store = TcpStream::connect(("127.0.0.1", store_port))?;
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    store.write_all(head.as_bytes())?;
    if fault == Fault::CutRequest {
        store.write_all(&request[body_at..body_at + length / 2])?;
        return client.shutdown(Shutdown::Both);
    }
    store.write_all(&request[body_at..])?;
    let mut answer = Vec::new();
    store.read_to_end(&mut answer)?;
    if fault == Fault::CutAnswer {
        client.write_all(&answer[..answer.len() / 2])?;
        return client.shutdown(Shutdown::Both);
    }
    client.write_all(&answer)
}
