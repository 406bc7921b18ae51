//! Reader of the kernel's ring buffers. Reads records in place, ordered by time, and releases them.
//!
//! Four CPUs share a ring, if memory allows more than one. With a single ring, each record would take a lock
//! that all CPUs contend for. With a ring for each CPU, reading in time order costs more than that lock does
//! among four. Source: the kernel's Documentation/bpf/ringbuf.rst.

use super::bpf::{Mapping, create_ring, create_ring_array, page_size};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// A record is still being written.
const BUSY: u32 = 1 << 31;
/// It was given up.
const DISCARDED: u32 = 1 << 30;
/// Length with the two bits above, and a page number that is the kernel's own.
const HEADER: usize = 8;
/// A smaller ring would not hold what comes while it is left alone.
const LEAST: usize = 1 << 20;
const MOST: usize = 1 << 30;
const CPUS_PER_RING: usize = 4;

/// The reading end of all rings.
#[derive(Debug)]
pub struct Rings {
    /// The map in which programs find the ring of their CPU.
    pub by_cpu: OwnedFd,
    rings: Vec<Ring>,
    /// Of each.
    size: usize,
    /// The time of the record that is next in each; `None`: none that may be handed on.
    next: Vec<Option<u64>>,
}

#[derive(Debug)]
struct Ring {
    size: usize,
    /// Of memory, bytes.
    page: usize,
    consumer: Mapping,
    /// A page with the kernel's position, then the data twice, so that no record is ever in two pieces.
    producer: Mapping,
    position: u64,
    /// What the kernel knows of it.
    released: u64,
    /// How far the kernel was when it was looked at last.
    produced: u64,
}

impl Rings {
    /// `bytes` of memory together, at least a MiB; each ring has a power of two of them. `cpus`: those that there may be, not all
    /// of which need be there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(bytes: usize, cpus: usize) -> io::Result<Self> {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let bytes = bytes.clamp(LEAST, MOST).next_power_of_two();
        let count = there.div_ceil(CPUS_PER_RING).next_power_of_two().min(bytes / LEAST);
        let size = bytes / count;
        let made = (0..count).map(|_| Ring::new(size)).collect::<io::Result<Vec<_>>>()?;
        let (fds, rings_made): (Vec<OwnedFd>, Vec<Ring>) = made.into_iter().unzip();
        let by_cpu = create_ring_array(&fds, cpus)?;
        Ok(Self { by_cpu, next: vec![None; count], rings: rings_made, size })
    }

    /// Bytes of one of them.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Hands each record that was begun until `until_ns` (CLOCK_MONOTONIC, read before this call) to `each`, in the order of
    /// their times; answers how many bytes the fullest ring held. After an error the record counts as taken.
    ///
    /// What one thread does after another thing may be in another CPU's ring, but it bears a later time: a record until
    /// `until_ns` is in its ring before any that follows it bears such a time.
    ///
    /// # Errors
    /// Result of the callback `each`.
    pub fn drain<E>(
        &mut self,
        until_ns: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut fullest = 0;
        for (ring, next) in self.rings.iter_mut().zip(&mut self.next) {
            fullest = fullest.max(ring.read_producer());
            *next = ring.next(until_ns);
        }
        let mut outcome = Ok(());
        while let Some((at, _)) = earliest(&self.next) {
            if outcome.is_err() {
                break;
            }
            let (ring, next) = (&mut self.rings[at], &mut self.next[at]);
            // Others' records of this time and later wait until this ring has come to them.
            outcome = each(ring.record());
            ring.skip_record();
            *next = ring.next(until_ns);
        }
        self.rings.iter_mut().for_each(Ring::release);
        outcome.map(|()| fullest)
    }
}

/// The ring whose next record is the earliest, and that record's time.
fn earliest(next: &[Option<u64>]) -> Option<(usize, u64)> {
    let there = next.iter().enumerate().filter_map(|(at, time)| Some((at, (*time)?)));
    there.min_by_key(|(_, time)| *time)
}

impl Ring {
    fn new(size: usize) -> io::Result<(OwnedFd, Self)> {
        let fd = create_ring(size)?;
        let page = page_size();
        let consumer = Mapping::new(&fd, page, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let producer = Mapping::new(&fd, page + 2 * size, libc::PROT_READ, page)?;
        Ok((fd, Self { size, page, consumer, producer, position: 0, released: 0, produced: 0 }))
    }

    /// How much is there.
    fn read_producer(&mut self) -> usize {
        self.produced = self.producer.word(0).load(Ordering::Acquire);
        (self.produced - self.position) as usize
    }

    /// Where the record that is next begins, and its length with the kernel's two bits.
    fn head(&self) -> (usize, u32) {
        let at = self.page + (self.position as usize & (self.size - 1));
        // Its upper half is the kernel's page number.
        let head = self.producer.word(at).load(Ordering::Acquire).to_ne_bytes();
        (at, u32::from_ne_bytes([head[0], head[1], head[2], head[3]]))
    }

    /// The time of the next record; `None`: there is none, it is still being written, or it is of later than `until_ns`.
    fn next(&mut self, until_ns: u64) -> Option<u64> {
        while self.position < self.produced {
            let (at, head) = self.head();
            if head & BUSY != 0 {
                return None;
            }
            if head & DISCARDED == 0 {
                // Records begin with their time (`record.rs`).
                let time = self.producer.word(at + HEADER).load(Ordering::Relaxed);
                return (time <= until_ns).then_some(time);
            }
            self.skip_record();
        }
        None
    }

    /// The next record, of which [`Ring::next`] has told the time.
    fn record(&self) -> &[u8] {
        let (at, head) = self.head();
        self.producer.bytes(at + HEADER, ((head & !DISCARDED) as usize).min(self.size))
    }

    fn skip_record(&mut self) {
        let length = (self.head().1 & !DISCARDED) as usize;
        self.position += (HEADER + length).next_multiple_of(8) as u64;
        // Early enough for the kernel to go on writing meanwhile, seldom enough to share the line with it in peace.
        if self.position - self.released > self.size as u64 / 16 {
            self.release();
        }
    }

    fn release(&mut self) {
        if self.released != self.position {
            self.consumer.word(0).store(self.position, Ordering::Release);
            self.released = self.position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_all_rings_is_next() {
        assert_eq!(earliest(&[]), None);
        assert_eq!(earliest(&[None, None]), None);
        assert_eq!(earliest(&[Some(7), None, Some(3), Some(9)]), Some((2, 3)));
        assert_eq!(earliest(&[Some(3), Some(3)]).unwrap().0, 0, "of two at a time, the first");
    }
}
