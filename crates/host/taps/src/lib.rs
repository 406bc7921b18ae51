//! Kernel interfaces: timed packet transmission, packet capture, and taps on a server's sockets.
//!
//! The only crate with `unsafe`: packet sockets, rings, programs in the kernel, and other kernel interfaces
//! that no safe crate provides. Never reads or writes a capture file. Never decides what is sent or
//! collected, nor at which rate.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod account;
mod block;
mod clock;
mod device;
mod disk;
mod filter;
mod listener;
mod pace;
mod privileges;
mod replay;
mod ring;
mod seccomp;
mod sender;
pub mod sockets;

pub use account::{Account, WindowError};
pub use block::{Captured, Damaged, Link};
pub use clock::now_ns;
pub use device::{Counters, Device, DeviceError};
pub use disk::{DiskFile, Way};
pub use filter::{Answers, Filter, MOST_PORTS, TooManyPorts, WHOLE};
pub use listener::{ListenError, Listener, PacketCounts, TakeError, Where};
pub use pace::{Pace, Rate};
pub use privileges::{PrivilegesError, drop_privileges};
pub use replay::{Ended, Packets, Progress, Replay, replay};
pub use ring::RingError;
pub use sender::{OpenError, Sender};
