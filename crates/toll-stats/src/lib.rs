//! What may be concluded from paired windows? Never reads a clock, file or socket.
