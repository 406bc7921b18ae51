//! Places of connections whose peers have not yet shown who they are. Bounded, and shared fairly between networks.
//!
//! When all places are taken, the network that has most of them gives up its oldest: whoever opens many connections
//! from one address takes places from itself alone. Never touches a connection that has a stream.

use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All strangers of a receiver.
pub struct Strangers {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_number: u64,
    /// Oldest first.
    places: Vec<Place>,
}

struct Place {
    number: u64,
    network: IpAddr,
    tcp: TcpStream,
}

/// A stranger's place, until it is dropped.
pub struct StrangerPlace {
    strangers: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Gives a place to a new connection. If there are too many now, closes one of the others.
    ///
    /// # Errors
    /// The peer has gone, or there are too many open files.
    pub fn admit(self: &Arc<Self>, tcp: &TcpStream) -> io::Result<StrangerPlace> {
        let (network, tcp) = (network(tcp.peer_addr()?.ip()), tcp.try_clone()?);
        let mut state = self.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.places.push(Place { number, network, tcp });
        if state.places.len() > self.max {
            let networks: Vec<IpAddr> = state.places.iter().map(|place| place.network).collect();
            let evicted = state.places.remove(least_entitled(&networks));
            // It may have gone already. The thread that serves it sees the end and finishes.
            let _ = evicted.tcp.shutdown(Shutdown::Both);
        }
        Ok(StrangerPlace { strangers: Arc::clone(self), number })
    }

    /// A thread that panicked left no half-made list.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.strangers.lock().places.retain(|place| place.number != self.number);
    }
}

/// What one person controls as a rule: an IPv4 address, or the /64 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
        v4 => v4,
    }
}

/// The oldest of the network with most places; of several such networks, the oldest of all. `networks`: oldest first.
fn least_entitled(networks: &[IpAddr]) -> usize {
    let count = |of: &IpAddr| networks.iter().filter(|network| *network == of).count();
    let most = networks.iter().map(count).max().unwrap_or(0);
    networks.iter().position(|network| count(network) == most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| network(text.parse().unwrap())).collect()
    }

    #[test]
    fn the_network_with_most_places_gives_up_its_oldest() {
        assert_eq!(least_entitled(&addresses(&["10.0.0.9", "10.0.0.1", "10.0.0.2", "10.0.0.1"])), 1);
        assert_eq!(least_entitled(&addresses(&["10.0.0.9", "10.0.0.1", "10.0.0.2"])), 0);
        let one_network = addresses(&["10.0.0.9", "fd00::1", "fd00::ffff:1", "fd00:0:0:1::1"]);
        assert_eq!(least_entitled(&one_network), 1);
        assert_eq!(addresses(&["::ffff:10.0.0.9"]), addresses(&["10.0.0.9"]));
    }

    #[test]
    fn one_too_many_closes_the_oldest_and_a_place_is_free_once_it_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let strangers = Strangers::new(2);
        let connect = || {
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            peer.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
            (peer, strangers.admit(&listener.accept().unwrap().0).unwrap())
        };
        let is_closed = |mut peer: &TcpStream| matches!(peer.read(&mut [0]), Ok(0));
        let (first, second) = (connect(), connect());
        drop(second.1);
        let third = connect();
        // The second had none any more, and the first was not in the way.
        assert!(!is_closed(&first.0) && !is_closed(&third.0));
        let fourth = connect();
        assert!(is_closed(&first.0) && !is_closed(&third.0) && !is_closed(&fourth.0));
        assert_eq!(strangers.lock().places.len(), 2);
    }
}
