//! What has the kernel put into the ring? Reads records in place and gives them back; never looks into one.
//!
//! Source: the kernel's Documentation/bpf/ringbuf.rst.

use super::bpf::{Mapping, page, ring};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// A record is still being written.
const BUSY: u32 = 1 << 31;
/// It was given up.
const DISCARDED: u32 = 1 << 30;
/// Length with the two bits above, and a page number that is the kernel's own.
const HEADER: usize = 8;

/// The reading end of a ring.
#[derive(Debug)]
pub struct Ring {
    pub fd: OwnedFd,
    size: usize,
    consumer: Mapping,
    /// A page with the kernel's position, then the data twice, so that no record is ever in two pieces.
    producer: Mapping,
    position: u64,
}

impl Ring {
    /// `size` is rounded up to a power of two of whole pages.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(size: usize) -> io::Result<Self> {
        let page = page();
        let size = size.clamp(page, 1 << 30).next_power_of_two();
        let fd = ring(size)?;
        let consumer = Mapping::new(&fd, page, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let producer = Mapping::new(&fd, page + 2 * size, libc::PROT_READ, page)?;
        Ok(Self { fd, size, consumer, producer, position: 0 })
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Hands each record that is complete to `each`, in the kernel's order; answers how many bytes they took. After an
    /// error the record counts as taken.
    ///
    /// # Errors
    /// What `each` answers.
    pub fn drain<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        let (begun, mut given_back) = (self.position, self.position);
        let produced = self.producer.word(0).load(Ordering::Acquire);
        let mut outcome = Ok(());
        while self.position < produced && outcome.is_ok() {
            let at = page() + (self.position as usize & (self.size - 1));
            // Its upper half is the kernel's page number.
            let head = self.producer.word(at).load(Ordering::Acquire).to_ne_bytes();
            let head = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
            if head & BUSY != 0 {
                break;
            }
            let length = (head & !DISCARDED) as usize;
            if head & DISCARDED == 0 {
                outcome = each(self.producer.bytes(at + HEADER, length.min(self.size)));
            }
            self.position += (HEADER + length).next_multiple_of(8) as u64;
            // Early enough for the kernel to go on writing meanwhile, seldom enough to share the line with it in peace.
            if self.position - given_back > self.size as u64 / 16 {
                self.consumer.word(0).store(self.position, Ordering::Release);
                given_back = self.position;
            }
        }
        self.consumer.word(0).store(self.position, Ordering::Release);
        outcome.map(|()| (self.position - begun) as usize)
    }
}
