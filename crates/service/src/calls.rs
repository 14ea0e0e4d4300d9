//! System calls that a daemon never makes, refused by the kernel from now on (seccomp).
//!
//! A list of rejected calls, and not of allowed ones: a C library, or a kernel, of next year makes
//! other calls for the same work, and a daemon that carries a link must not stop for that. A rejected
//! call returns `EPERM`, and ends nothing. The list has calls that start other programs, inspect other
//! processes, change the machine, and those by which the kernel has been attacked most.
//!
//! The kernel determines for which calls the filter reads arguments, and decides the others by a table
//! (since Linux 5.11): allowed calls cost next to nothing.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

use crate::privileges::Needs;

/// Refused on every machine.
const NEVER: &[i64] = &[
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    // Other users.
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
    // Another view of the machine.
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mknodat,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    // The machine itself.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_personality,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // Much code behind few calls.
    libc::SYS_add_key,
    libc::SYS_fanotify_init,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// The same calls have other numbers too, for programs with short pointers: those of the others with
/// this bit, and some of their own. There are no such programs here.
#[cfg(target_arch = "x86_64")]
const SHORT_POINTERS: i64 = 1 << 30;
#[cfg(target_arch = "x86_64")]
const OF_THEIR_OWN: std::ops::RangeInclusive<i64> = 512..=547;

/// Rejects unneeded calls, for all threads of this process. The error is a message.
pub(crate) fn take_away(needs: Needs) -> Result<(), String> {
    let filter = program(needs).map_err(|error| {
        format!("system calls that are not needed cannot be refused on {ARCH}: {error}")
    })?;
    apply_filter_all_threads(&filter).map_err(|error| {
        format!("the kernel does not refuse system calls that are not needed: {error}")
    })
}

fn program(needs: Needs) -> Result<BpfProgram, seccompiler::BackendError> {
    // Without a rule on its arguments a call is refused whatever they are.
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().map(|&call| (call, Vec::new())).collect();
    if !needs.programs {
        refused.insert(libc::SYS_bpf, Vec::new());
    }
    #[cfg(target_arch = "x86_64")]
    {
        let numbers: Vec<i64> = refused.keys().copied().chain(OF_THEIR_OWN).collect();
        refused.extend(
            numbers
                .into_iter()
                .map(|call| (call | SHORT_POINTERS, Vec::new())),
        );
    }
    // A thread may have a file mode creation mask of its own, and no namespace.
    let more_than_a_mask = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        libc::CLONE_FS.unsigned_abs().into(),
    )?;
    refused.insert(
        libc::SYS_unshare,
        vec![SeccompRule::new(vec![more_than_a_mask])?],
    );
    SeccompFilter::new(
        refused,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        ARCH.try_into()?,
    )?
    .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_a_program_that_the_kernel_takes() {
        for programs in [false, true] {
            let needs = Needs {
                programs,
                ..Needs::default()
            };
            let program = program(needs).unwrap();
            assert!((NEVER.len()..4_096).contains(&program.len()));
        }
    }

    /// For a single thread, which continues.
    #[test]
    fn what_is_refused_says_so_and_ends_nothing() {
        use std::io::ErrorKind::PermissionDenied;
        let here = std::thread::spawn(|| {
            let program = program(Needs::default()).unwrap();
            if let Err(error) = seccompiler::apply_filter(&program) {
                return Some(error);
            }
            let started = std::process::Command::new("true").status();
            assert_eq!(started.unwrap_err().kind(), PermissionDenied);
            let file = std::fs::read_to_string("/proc/self/status").unwrap();
            assert!(file.contains("Seccomp:"), "all else goes on");
            None
        });
        if let Some(error) = here.join().unwrap() {
            let reason = format_args!("the kernel filters no system calls: {error}");
            fairlane_netlab::skip_unsupported("a filter of system calls", reason);
        }
    }
}
