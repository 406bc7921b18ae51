//! Kernel interfaces: timed packet transmission, packet capture, and taps on a server's sockets.
//!
//! The only crate with `unsafe`: packet sockets, rings, programs in the kernel, and other kernel interfaces
//! that no safe crate provides. Never reads or writes a capture file. Never decides what is sent or
//! collected, nor at which rate.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod architecture;
mod block;
mod clock;
mod device;
mod disk;
mod filesystem;
mod filter;
mod pace;
mod pacing_stats;
mod packet_capture;
mod privileges;
mod replay;
mod ring;
mod seccomp;
mod sender;
pub mod sockets;

pub use block::{CapturedPacket, DamagedBlock, LinkType};
pub use clock::now_ns;
pub use device::{Counters, Device, DeviceError, WayOut};
pub use disk::{DiskFile, WriteMode};
pub use filesystem::{WritePlaces, places_of};
pub use filter::{MAX_PORTS, MAX_SNAP_LEN, PacketFilter, ResponseSnap, TooManyPorts};
pub use pace::{Pace, Rate};
pub use pacing_stats::{PacingStats, WindowDeviation};
pub use packet_capture::{CaptureDevice, CaptureError, CaptureOpenError, PacketCapture, PacketCounts};
pub use privileges::{PrivilegesError, drop_privileges};
pub use replay::{FrameList, ReplayPlan, ReplayProgress, ReplayResult, replay_frames};
pub use ring::RingError;
pub use sender::{OpenError, Sender};
