//! How do packets leave a host, at the times that were asked for?
//!
//! The only room with `unsafe`: packet sockets and the kernel's own structures for them. Never opens a
//! capture file and never decides what is sent, nor at which rate.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod account;
mod clock;
mod device;
mod pace;
mod replay;
mod sender;

pub use account::{Account, WindowError};
pub use clock::now_ns;
pub use device::{Counters, Device, DeviceError};
pub use pace::{Pace, Rate};
pub use replay::{Ended, Packets, Progress, Replay, replay};
pub use sender::{OpenError, Sender};
