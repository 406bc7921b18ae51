//! Seccomp filter that denies system calls a capture never makes, also to an attacker who controls the
//! process.
//!
//! A denylist: an allowlist breaks with every new libc, on users' hosts. The kernel keeps a bitmap of the calls that the
//! filter always allows (Linux 5.11) and does not run the filter for these.

use crate::architecture::OWN;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog,
};
use std::io;

// Places in `struct seccomp_data` of linux/seccomp.h.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Calls of the x32 ABI have this bit; they come from the same architecture as others of x86_64.
const X32: u32 = 0x4000_0000;
const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// Where `struct seccomp_data` has the lower half of the first argument, on little-endian machines as both are.
const FIRST_ARGUMENT: u32 = 16;
/// Tells the C library to start its threads by clone(2), whose flags a filter can see.
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
/// Flags of clone(2) that make namespaces.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Calls that start another program, read other processes, enter other namespaces, get around other limits, or change the
/// host's mounts, modules, name or clock.
const DENIED: [libc::c_long; 46] = [
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
    libc::SYS_process_madvise,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_request_key,
    libc::SYS_quotactl,
    libc::SYS_acct,
];

/// Denies them to this thread and all that it starts, for good: they fail with EPERM. Nothing is denied on kernels without
/// seccomp, nor on architectures that have no table. The thread must have no_new_privs set.
///
/// # Errors
/// The kernel refuses the filter.
pub fn install() -> io::Result<()> {
    let Some(own) = OWN.as_ref() else { return Ok(()) };
    let mut program = program(own.audit);
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // Without this flag, kernels before 5.16 turn on mitigations (SSBD, STIBP) that slow the process down and that this filter
    // does not need.
    match install_with_seccomp(&filter, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW) {
        // The flag needs Linux 4.17; a systemd unit may forbid seccomp(2) and allow prctl(2).
        Err(error) if is_one_of(&error, &[libc::EINVAL, libc::ENOSYS, libc::EPERM]) => {}
        outcome => return outcome,
    }
    match install_with_prctl(&filter) {
        // A kernel without seccomp.
        Err(error) if is_one_of(&error, &[libc::EINVAL, libc::ENOSYS]) => Ok(()),
        outcome => outcome,
    }
}

/// Denies one call alone, to try what the kernel does then. It allocates nothing and takes no lock, for a child between fork
/// and exit.
///
/// # Errors
/// As of [`install`].
pub fn deny_one(number: u32) -> io::Result<()> {
    let mut program = [
        instruction(BPF_LD | BPF_W | BPF_ABS, NUMBER, 0, 0),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        instruction(BPF_RET | BPF_K, DENY, 0, 0),
        instruction(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    install_with_prctl(&sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() })
}

fn is_one_of(error: &io::Error, numbers: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}

fn install_with_seccomp(filter: &sock_fprog, flags: libc::c_ulong) -> io::Result<()> {
    let at = std::ptr::from_ref(filter);
    // SAFETY: the kernel copies the program, which lives in the caller and is as long as its header says.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, at) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn install_with_prctl(filter: &sock_fprog) -> io::Result<()> {
    let at = std::ptr::from_ref(filter);
    // SAFETY: as above.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, at) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn program(architecture: u32) -> Vec<sock_filter> {
    let denied = DENIED.len() as u8;
    let mut program = vec![
        instruction(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE, 0, 0),
        // Calls by another architecture's numbers are denied.
        instruction(BPF_JMP | BPF_JEQ | BPF_K, architecture, 0, denied + 7),
        instruction(BPF_LD | BPF_W | BPF_ABS, NUMBER, 0, 0),
        instruction(BPF_JMP | BPF_JGE | BPF_K, X32, denied + 5, 0),
    ];
    for (left, number) in (0..denied).rev().zip(DENIED) {
        program.push(instruction(BPF_JMP | BPF_JEQ | BPF_K, number as u32, left + 5, 0));
    }
    program.extend([
        instruction(BPF_JMP | BPF_JEQ | BPF_K, libc::SYS_clone3 as u32, 5, 0),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, libc::SYS_clone as u32, 0, 2),
        instruction(BPF_LD | BPF_W | BPF_ABS, FIRST_ARGUMENT, 0, 0),
        instruction(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 1, 0),
        instruction(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        instruction(BPF_RET | BPF_K, DENY, 0, 0),
        instruction(BPF_RET | BPF_K, NO_SUCH_CALL, 0, 0),
    ]);
    program
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86_64: u32 = crate::architecture::X86_64.audit;
    /// linux/audit.h
    const I386: u32 = 0x4000_0003;

    /// The filter's answer to a call, computed as the kernel does.
    fn answer(program: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let code = u32::from(code);
            if code == BPF_LD | BPF_W | BPF_ABS {
                accumulator = match k {
                    NUMBER => number,
                    ARCHITECTURE => architecture,
                    _ => argument,
                };
            } else if code == BPF_RET | BPF_K {
                return k;
            } else {
                let holds = match code & 0xf0 {
                    BPF_JEQ => accumulator == k,
                    BPF_JGE => accumulator >= k,
                    _ => accumulator & k != 0,
                };
                at += usize::from(if holds { jt } else { jf });
            }
        }
    }

    #[test]
    fn denied_calls_fail_and_no_others() {
        let program = program(X86_64);
        for number in 0..600_u32 {
            let expected = match libc::c_long::from(number) {
                libc::SYS_clone3 => NO_SUCH_CALL,
                denied if DENIED.contains(&denied) => DENY,
                _ => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(answer(&program, X86_64, number, 0), expected, "call {number}");
            assert_eq!(answer(&program, X86_64, number | X32, 0), DENY, "call {number} of x32");
            assert_eq!(answer(&program, I386, number, 0), DENY, "call {number} of another architecture");
        }
    }

    #[test]
    fn a_clone_may_be_a_thread_and_no_namespace() {
        let program = program(X86_64);
        let answer = |flags: i32| answer(&program, X86_64, libc::SYS_clone as u32, flags as u32);
        let thread =
            libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        assert_eq!(
            (answer(thread), answer(libc::SIGCHLD)),
            (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ALLOW)
        );
        for namespace in [libc::CLONE_NEWNS, libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
            assert_eq!((answer(namespace), answer(namespace | thread)), (DENY, DENY), "{namespace:x}");
        }
    }

    #[test]
    fn a_filtered_thread_starts_threads_and_makes_no_namespace() {
        let filtered = std::thread::spawn(|| {
            nix::sys::prctl::set_no_new_privs().unwrap();
            install().unwrap();
            let flags = libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
            // SAFETY: it is denied; were it not, the child would end at once.
            let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            (child, std::thread::spawn(|| 7).join().unwrap())
        });
        assert_eq!(filtered.join().unwrap(), (-1, 7));
    }

    /// By calls that fail for another reason where they are not denied: descriptor, address and pid are invalid.
    #[test]
    fn the_kernel_denies_them_to_the_thread_that_asked_and_to_no_other() {
        let errno = |number| {
            // SAFETY: no argument is a valid address, so that the kernel reads and writes no memory of this process.
            let answer = unsafe { libc::syscall(number, -1, -1, -1, -1, -1) };
            (answer == -1).then(io::Error::last_os_error).and_then(|error| error.raw_os_error())
        };
        let calls = [libc::SYS_execve, libc::SYS_execveat, libc::SYS_process_vm_readv];
        let denied = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            install().unwrap();
            (calls.map(errno), errno(libc::SYS_close))
        });
        assert_eq!(denied.join().unwrap(), ([Some(libc::EPERM); 3], Some(libc::EBADF)));
        assert!(!calls.map(errno).contains(&Some(libc::EPERM)));
    }
}
