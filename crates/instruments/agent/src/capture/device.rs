//! Tap on a network device. Connects the listener to the output; knows neither rings nor files.

use super::output::Output;
use super::tap::{Seen, Tap};
use anyhow::{Context, anyhow};
use std::time::Duration;
use toll_taps::{Filter, Listener, TakeError, Where};
use toll_wire::pcap::{Frame, Link};

/// The packets of a device, or of all.
pub struct Packets {
    listener: Listener,
    link: Link,
}

impl Packets {
    /// Starts the capture. `device`: a name, or `any` for all devices.
    ///
    /// # Errors
    /// No such device, not permitted, no memory; too many ports.
    pub fn open(device: &str, filter: &Filter, buffer_bytes: usize) -> anyhow::Result<Self> {
        let place = if device == "any" { Where::Any } else { Where::Device(device.to_owned()) };
        let listener = Listener::open(&place, filter, buffer_bytes)?;
        let link = match listener.link() {
            toll_taps::Link::Raw => Link::Raw,
            toll_taps::Link::Cooked => Link::LinuxSll,
        };
        Ok(Self { listener, link })
    }

    /// As capture files number it (<https://www.tcpdump.org/linktypes.html>).
    pub fn link_number(&self) -> u16 {
        match self.link {
            Link::Raw => 101,
            _ => 113,
        }
    }
}

impl Tap for Packets {
    fn take(&mut self, wait: Duration, to: &mut dyn Output) -> anyhow::Result<()> {
        let link = self.link;
        let taken = self.listener.take(wait, |captured| {
            let toll_taps::Captured { time_ns, wire_len, bytes } = *captured;
            to.packet(&Frame { time_ns, link, wire_len, bytes })
        });
        taken.map_err(|error| match error {
            TakeError::Refused(refused) => refused,
            TakeError::Gone(_) => anyhow!("{error}; what was captured until then is whole"),
            other => anyhow!("{other}"),
        })
    }

    fn close(&mut self) -> anyhow::Result<()> {
        self.listener.close().context("cannot close the packet socket's filter")
    }

    fn counters(&mut self) -> anyhow::Result<Seen> {
        let counts = self.listener.counts().context("cannot read the counters of the packet socket")?;
        Ok(Seen { passed: counts.passed, taken: counts.taken, lost_kernel: counts.dropped })
    }

    fn lost_between(&self) -> Option<(u64, u64)> {
        self.listener.lost_between()
    }
}
