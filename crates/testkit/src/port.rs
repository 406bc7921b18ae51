//! Port selection for servers of tests.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Below the range from which any connection takes its own end; test programs side by side begin
/// to look in different places.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(97);
    let mut ports =
        std::iter::repeat_with(|| 12_000 + (begin.wrapping_add(NEXT.fetch_add(1, Relaxed)) % 20_000) as u16);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).unwrap()
}
