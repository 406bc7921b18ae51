//! Tap on a network device. Connects the listener to the output; knows neither rings nor files.

use super::output::CaptureOutput;
use super::tap::{Tap, TapCounters};
use anyhow::{Context, anyhow};
use std::time::Duration;
use toll_taps::{CaptureDevice, CaptureError, PacketCapture, PacketFilter};
use toll_wire::pcap::{Frame, Link};

/// The packets of a device, or of all.
pub struct DeviceTap {
    listener: PacketCapture,
    link: Link,
}

impl DeviceTap {
    /// Starts the capture. `device`: a name, or `any` for all devices.
    ///
    /// # Errors
    /// No such device, not permitted, no memory; too many ports.
    pub fn open(device: &str, filter: &PacketFilter, buffer_bytes: usize) -> anyhow::Result<Self> {
        let place =
            if device == "any" { CaptureDevice::Any } else { CaptureDevice::Device(device.to_owned()) };
        let listener = PacketCapture::open(&place, filter, buffer_bytes)?;
        let link = match listener.link() {
            toll_taps::LinkType::Raw => Link::Raw,
            toll_taps::LinkType::Cooked => Link::LinuxSll,
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

impl Tap for DeviceTap {
    fn poll(&mut self, wait: Duration, to: &mut dyn CaptureOutput) -> anyhow::Result<()> {
        let link = self.link;
        let taken = self.listener.poll_packets(wait, |captured| {
            let toll_taps::CapturedPacket { time_ns, wire_len, bytes } = *captured;
            to.packet(&Frame { time_ns, link, wire_len, bytes })
        });
        taken.map_err(|error| match error {
            CaptureError::Refused(refused) => refused,
            CaptureError::Gone(_) => anyhow!("{error}; what was captured until then is whole"),
            other => anyhow!("{other}"),
        })
    }

    fn close(&mut self) -> anyhow::Result<()> {
        self.listener.close().context("cannot close the packet socket's filter")
    }

    fn counters(&mut self) -> anyhow::Result<TapCounters> {
        let counts = self.listener.read_counts().context("cannot read the counters of the packet socket")?;
        Ok(TapCounters { passed: counts.passed, delivered: counts.delivered, lost_kernel: counts.dropped })
    }

    fn loss_interval(&self) -> Option<(u64, u64)> {
        self.listener.loss_interval()
    }
}
