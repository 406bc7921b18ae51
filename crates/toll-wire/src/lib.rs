//! What did the packets and logs of a host say? Never reads a clock, file or socket.

pub mod event;
