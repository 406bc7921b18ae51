//! Safety of return probes: says if the kernel would kill a process for one. Attaches none.
//!
//! - Since Linux 6.11, a return probe on x86_64 makes the probed process enter the kernel by a system call of its own
//!   (`uretprobe`). A seccomp filter that does not know this call fails it, and the process dies. Mended in 6.12.14, 6.13.3
//!   and 6.14; vendors mend, and break, other versions. The kernel is therefore tried, with a child of ours.
//! - Before Linux 6.11, a return probe broke a user shadow stack. Mended in 6.6.44 and 6.10.3 too. No child can try that, as
//!   it takes a processor and a C library with shadow stacks: the version decides.

use super::kernel_version;
use crate::architecture::OWN;
use crate::seccomp;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

// Exit codes of the child.
const NO_SUCH_CALL: i32 = 1;
const DENIED: i32 = 2;
const NOT_TRIED: i32 = 3;

/// Checks that a return probe does not kill this process. Everything that attaches return probes asks here first.
///
/// # Errors
/// It would or might. The text is half a sentence.
pub fn check_return_probes(pid: u32) -> Result<(), String> {
    let statuses = thread_statuses(pid).map_err(|error| {
        format!(
            "the state of process {pid} cannot be read, without which a return probe may kill it: {error}"
        )
    })?;
    check(&statuses, &kernel_version::release(), seccomp_fails_return_probes)
}

/// Status of each thread: filters and shadow stacks are each thread's own.
fn thread_statuses(pid: u32) -> std::io::Result<Vec<String>> {
    let mut statuses = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended since.
        statuses.extend(std::fs::read_to_string(thread?.path().join("status")));
    }
    Ok(statuses)
}

fn check(statuses: &[String], release: &str, seccomp_fails: impl FnOnce() -> bool) -> Result<(), String> {
    let has = |name: &str, is: fn(&str) -> bool| {
        let mut lines = statuses.iter().flat_map(|status| status.lines());
        lines.any(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')).is_some_and(is))
    };
    if has("x86_Thread_features", |features| features.split_whitespace().any(|feature| feature == "shstk"))
        && breaks_shadow_stacks(release)
    {
        return Err(format!(
            "the server uses shadow stacks, and Linux {release} may kill it at a return probe. \
             Update the kernel to 6.6.44, 6.10.3, 6.11 or later"
        ));
    }
    if has("Seccomp", |mode| mode.trim() != "0") && seccomp_fails() {
        return Err(format!(
            "the server runs under a seccomp filter, and Linux {release} may kill it at a return probe. \
             Update the kernel to 6.12.14, 6.13.3, 6.14 or later"
        ));
    }
    Ok(())
}

fn breaks_shadow_stacks(release: &str) -> bool {
    let version = kernel_version::parse(release);
    version < [6, 6, 44] || ([6, 7, 0]..[6, 10, 3]).contains(&version)
}

/// True unless a filter has no say on `uretprobe`, or the kernel has no such call.
fn seccomp_fails_return_probes() -> bool {
    let Some(number) = OWN.as_ref().and_then(|own| own.return_probe_call) else { return false };
    // Who makes this call outside of a probe gets SIGILL, once it is past all filters.
    let passed = |outcome| matches!(outcome, Some(WaitStatus::Signaled(_, Signal::SIGILL, _)));
    let exited = |outcome, code| matches!(outcome, Some(WaitStatus::Exited(_, found)) if found == code);
    !passed(call_in_child(number, true)) && !exited(call_in_child(number, false), NO_SUCH_CALL)
}

/// Makes the call in a child that ends with it, under a filter that denies it or without.
fn call_in_child(number: u32, under_filter: bool) -> Option<WaitStatus> {
    // SAFETY: the child makes system calls alone, allocates nothing, and ends by _exit.
    match unsafe { fork() }.ok()? {
        ForkResult::Parent { child } => waitpid(child, None).ok(),
        ForkResult::Child => {
            let code = call(number, under_filter);
            // SAFETY: ends this process, without anything of its parent's being run.
            unsafe { libc::_exit(code) }
        }
    }
}

/// In the child.
fn call(number: u32, under_filter: bool) -> i32 {
    // No core dump, whatever the host does with these.
    let quiet = nix::sys::prctl::set_dumpable(false);
    // SAFETY: resets a signal of a process that has one thread.
    unsafe { libc::signal(libc::SIGILL, libc::SIG_DFL) };
    if quiet.is_err()
        || nix::sys::prctl::set_no_new_privs().is_err()
        || (under_filter && seccomp::deny_one(number).is_err())
    {
        return NOT_TRIED;
    }
    // SAFETY: it has no arguments.
    let answer = unsafe { libc::syscall(libc::c_long::from(number)) };
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOSYS) if answer == -1 => NO_SUCH_CALL,
        _ => DENIED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(lines: &str) -> Vec<String> {
        vec![
            "Name:\tmariadbd\nSeccomp:\t0\nSeccomp_filters:\t0\n".into(),
            format!("Name:\tworker\n{lines}\n"),
        ]
    }

    #[test]
    fn a_filter_counts_where_the_kernel_lets_it_fail_return_probes() {
        for (lines, fails, refused) in [
            ("Seccomp:\t2", true, true),
            ("Seccomp:\t2", false, false),
            ("Seccomp:\t1", true, true),
            ("Seccomp:\t0", true, false),
            ("Seccomp_filters:\t2", true, false),
        ] {
            let outcome = check(&status(lines), "6.12.3", || fails);
            assert_eq!(outcome.is_err(), refused, "{lines} {fails}: {outcome:?}");
        }
        let why = check(&status("Seccomp:\t2"), "6.12.3-amd64", || true).unwrap_err();
        assert!(why.contains("seccomp") && why.contains("6.12.3-amd64") && why.contains("6.12.14"), "{why}");
        check(&status("Seccomp:\t0"), "6.12.3", || panic!("nothing is tried without need")).unwrap();
    }

    #[test]
    fn shadow_stacks_count_on_kernels_that_break_them() {
        let shadow = status("x86_Thread_features:\tshstk wrss ");
        for broken in
            ["6.6.43", "6.6.0-rc1", "6.7.12-1-default", "6.9", "6.10.2", "6.5.0-44-generic", "6.10", ""]
        {
            assert!(check(&shadow, broken, || false).unwrap_err().contains("shadow stack"), "{broken}");
        }
        for mended in ["6.6.44", "6.6.119-1", "6.10.3", "6.11.0-8-generic", "6.18.44", "7.0"] {
            check(&shadow, mended, || false).unwrap();
        }
        check(&status("x86_Thread_features:\t"), "6.6.1", || false).unwrap();
        check(&status("x86_Thread_features_locked:\tshstk"), "6.6.1", || false).unwrap();
    }

    #[test]
    fn this_kernel_is_tried_and_says_the_same_as_its_version() {
        let release = kernel_version::release();
        let version = kernel_version::parse(&release);
        // Between these a vendor may have mended it.
        let number = OWN.as_ref().and_then(|own| own.return_probe_call);
        if let Some(number) = number
            && !([6, 11, 0]..[6, 14, 0]).contains(&version)
        {
            assert!(!seccomp_fails_return_probes(), "{release}");
            assert!(matches!(
                (call_in_child(number, true), call_in_child(number, false)),
                (Some(WaitStatus::Exited(_, DENIED)), Some(WaitStatus::Exited(_, NO_SUCH_CALL)))
                    | (
                        Some(WaitStatus::Signaled(_, Signal::SIGILL, false)),
                        Some(WaitStatus::Signaled(_, Signal::SIGILL, false))
                    )
            ));
        }
    }

    #[test]
    fn a_process_without_filters_may_be_probed_and_one_that_is_gone_may_not() {
        let filtered = std::fs::read_to_string("/proc/self/status").unwrap();
        if filtered.contains("Seccomp:\t0") {
            check_return_probes(std::process::id()).unwrap();
        }
        let gone = check_return_probes(u32::MAX / 2).unwrap_err();
        assert!(gone.contains("cannot be read"), "{gone}");
    }
}
