//! Which system calls can a capture never have use for, so that whoever took it over could not make them either?
//!
//! A list of what is forbidden, not of what is allowed: a list of the latter breaks with every new libc, on users' hosts. The
//! kernel looks a call up in a bitmap (Linux 5.11) and does not run the filter for those that it lets pass.

use libc::{BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};
use std::io;

/// linux/audit.h; `None`: a machine on which this was never tried.
const OWN_ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};
/// struct seccomp_data of linux/seccomp.h
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Calls of the x32 ABI have this bit.
const X32: u32 = 0x4000_0000;

/// To become another program, to look into other processes, to enter other namespaces, to change what is mounted, loaded, named
/// or timed on the host.
const FORBIDDEN: [libc::c_long; 36] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_file_load,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// Forbids them to this thread and all that it starts, for good: they fail with EPERM. Where the kernel has no seccomp, nothing
/// is forbidden. To be called once no new privileges can be had.
///
/// # Errors
/// The kernel refuses the filter.
pub fn forbid() -> io::Result<()> {
    let Some(architecture) = OWN_ARCHITECTURE else { return Ok(()) };
    let mut program = program(architecture);
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // That flag: some kernels make whoever has a filter pay for mitigations that this one has no need of.
    match by_seccomp(&filter, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW) {
        // Linux 4.17 brought the flag; a unit of systemd's may forbid the call, and not the other way to the same.
        Err(error) if is_one_of(&error, &[libc::EINVAL, libc::ENOSYS, libc::EPERM]) => {}
        done => return done,
    }
    match by_prctl(&filter) {
        // Built without it.
        Err(error) if is_one_of(&error, &[libc::EINVAL, libc::ENOSYS]) => Ok(()),
        done => done,
    }
}

fn is_one_of(error: &io::Error, numbers: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}

fn by_seccomp(filter: &sock_fprog, flags: libc::c_ulong) -> io::Result<()> {
    let at = std::ptr::from_ref(filter);
    // SAFETY: the kernel copies the program, which lives in the caller and is as long as its header says.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, at) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn by_prctl(filter: &sock_fprog) -> io::Result<()> {
    let at = std::ptr::from_ref(filter);
    // SAFETY: as above.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, at) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn program(architecture: u32) -> Vec<sock_filter> {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let forbidden = FORBIDDEN.len() as u8;
    let mut program = vec![
        step(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE, 0, 0),
        // A call by another architecture's numbers is refused.
        step(BPF_JMP | BPF_JEQ | BPF_K, architecture, 0, forbidden + 3),
        step(BPF_LD | BPF_W | BPF_ABS, NUMBER, 0, 0),
        step(BPF_JMP | BPF_JGE | BPF_K, X32, forbidden + 1, 0),
    ];
    for (left, number) in (0..forbidden).rev().zip(FORBIDDEN) {
        program.push(step(BPF_JMP | BPF_JEQ | BPF_K, number as u32, left + 1, 0));
    }
    program.push(step(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(step(BPF_RET | BPF_K, refuse, 0, 0));
    program
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 0xc000_003e;

    /// What the filter answers to a call, by running it as the kernel does.
    fn answer(architecture: u32, number: u32) -> u32 {
        let (program, mut at, mut accumulator) = (program(OWN), 0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let code = u32::from(code);
            if code == BPF_LD | BPF_W | BPF_ABS {
                accumulator = if k == NUMBER { number } else { architecture };
            } else if code == BPF_RET | BPF_K {
                return k;
            } else {
                let holds =
                    if code == BPF_JMP | BPF_JEQ | BPF_K { accumulator == k } else { accumulator >= k };
                at += usize::from(if holds { jt } else { jf });
            }
        }
    }

    #[test]
    fn what_is_forbidden_is_refused_and_nothing_else() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        for number in 0..600_u32 {
            let is_forbidden = FORBIDDEN.contains(&libc::c_long::from(number));
            let expected = if is_forbidden { refused } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(OWN, number), expected, "call {number}");
            assert_eq!(answer(OWN, number | X32), refused);
            assert_eq!(answer(0x4000_0003, number), refused, "another architecture's numbers");
        }
    }
}
