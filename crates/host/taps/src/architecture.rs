//! What differs between processor architectures, in one table each: registers, numbers of system calls, kernel quirks.
//!
//! Everything else in this crate is the same on all of them. A table is compared with libc's structures and numbers when it
//! is compiled for its architecture.

/// An architecture, as the kernel's programs and filters see it.
#[derive(Debug)]
pub struct Architecture {
    pub abi: Abi,
    /// AUDIT_ARCH of linux/audit.h, by which seccomp filters know whose numbers a system call has.
    pub audit: u32,
    /// The system call by which a process enters the kernel at a return probe, where newer kernels have one.
    pub return_probe_call: Option<u32>,
}

/// Registers, by their places in the kernel's `struct pt_regs`, and numbers of system calls.
#[derive(Debug)]
pub struct Abi {
    /// Arguments of a system call, also once it has returned.
    pub first: i16,
    pub second: i16,
    pub third: i16,
    pub fourth: i16,
    /// Of the system call, in four bytes.
    pub number: i16,
    /// First argument of a function at its beginning; the others are where those of a system call are.
    pub function_first: i16,
    /// Result of a function when it has returned.
    pub function_result: i16,
    /// Begin and length of the parts in which all of a system call lies.
    pub parts: [(i16, i16); 2],
    pub send: i32,
    pub receive: i32,
    pub accept: i32,
    pub accept4: i32,
    pub close: i32,
    pub read: i32,
    pub write: i32,
}

pub const X86_64: Architecture = Architecture {
    abi: Abi {
        first: 112,
        second: 104,
        third: 96,
        fourth: 56,
        number: 120,
        function_first: 112,
        function_result: 80,
        parts: [(56, 72), (0, 0)],
        send: 44,
        receive: 45,
        accept: 43,
        accept4: 288,
        close: 3,
        read: 0,
        write: 1,
    },
    audit: 0xc000_003e,
    return_probe_call: Some(335),
};

/// The first register takes the result, so that a system call's first argument is kept behind the others.
pub const AARCH64: Architecture = Architecture {
    abi: Abi {
        first: 272,
        second: 8,
        third: 16,
        fourth: 24,
        number: 280,
        function_first: 0,
        function_result: 0,
        parts: [(0, 32), (272, 16)],
        send: 206,
        receive: 207,
        accept: 202,
        accept4: 242,
        close: 57,
        read: 63,
        write: 64,
    },
    audit: 0xc000_00b7,
    return_probe_call: None,
};

/// This one. `None`: an architecture that has no table.
pub static OWN: Option<Architecture> = if cfg!(target_arch = "x86_64") {
    Some(X86_64)
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    Some(AARCH64)
} else {
    None
};

// The kernel shows debuggers the same registers in the same order.
#[cfg(target_arch = "x86_64")]
const _: () = {
    use libc::user_regs_struct as Registers;
    use std::mem::offset_of;
    let abi = X86_64.abi;
    assert!(abi.first as usize == offset_of!(Registers, rdi));
    assert!(abi.second as usize == offset_of!(Registers, rsi));
    assert!(abi.third as usize == offset_of!(Registers, rdx));
    assert!(abi.fourth as usize == offset_of!(Registers, r10));
    assert!(abi.number as usize == offset_of!(Registers, orig_rax));
    assert!(abi.function_first as usize == offset_of!(Registers, rdi));
    assert!(abi.function_result as usize == offset_of!(Registers, rax));
    assert!(abi.has_the_numbers_of_libc());
};
#[cfg(target_arch = "aarch64")]
const _: () = {
    use libc::user_regs_struct as Registers;
    let abi = AARCH64.abi;
    assert!(std::mem::offset_of!(Registers, regs) == 0);
    // These two follow in `struct pt_regs` alone.
    assert!(abi.first as usize == size_of::<Registers>());
    assert!(abi.number as usize == size_of::<Registers>() + 8);
    assert!(abi.has_the_numbers_of_libc());
};

impl Abi {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    const fn has_the_numbers_of_libc(&self) -> bool {
        self.send as libc::c_long == libc::SYS_sendto
            && self.receive as libc::c_long == libc::SYS_recvfrom
            && self.accept as libc::c_long == libc::SYS_accept
            && self.accept4 as libc::c_long == libc::SYS_accept4
            && self.close as libc::c_long == libc::SYS_close
            && self.read as libc::c_long == libc::SYS_read
            && self.write as libc::c_long == libc::SYS_write
    }
}
