//! System calls without a safe wrapper, each with the argument for its safety.
//!
//! The rest of this crate is safe code.
#![expect(unsafe_code, reason = "system calls without a safe wrapper live here and nowhere else")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::ioctl::{IntegerSetter, Updater, ioctl, opcode};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// `struct ifreq` as far as `TUNSETIFF` uses it: a name of up to 15 bytes, flags, the rest zero.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// `TUNSETIFF` and `TUNSETOFFLOAD` of linux/if_tun.h. Both are declared with an integer type but take
/// something else: a pointer to an `ifreq`, and a plain number.
const TUNSETIFF: u32 = opcode::write::<i32>(b'T', 202) as u32;
const TUNSETOFFLOAD: u32 = opcode::write::<u32>(b'T', 208) as u32;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

/// Checksum offload, and segmentation offload for TCP over IPv4 and IPv6.
const TUN_F_CSUM_TSO: usize = 0x01 | 0x02 | 0x04;
/// Segmentation offload for UDP over IPv4 and IPv6, since Linux 6.2.
const TUN_F_USO: usize = 0x20 | 0x40;

/// Turns `device`, an open `/dev/net/tun`, into the TUN interface `name` in the calling thread's network
/// namespace. A `virtio_net_hdr` of 10 bytes precedes every packet. With `large_segments` (TSO, USO) the
/// kernel passes packets of up to 64 KiB.
pub(crate) fn become_tun(device: &File, name: &str, large_segments: bool) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR,
        rest: [0; 22],
    };
    if name.len() > 15 {
        return Err(io::Error::other("an interface's name has 15 bytes at most"));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq` of 40 bytes and writes one back. `InterfaceRequest` has this
    // size and consists of integers, so any bytes from the kernel are a valid value. `request` is borrowed
    // for the call, and the kernel keeps no pointer to it.
    unsafe { ioctl(device, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request)) }?;
    let offload = |flags: usize| {
        // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
        unsafe { ioctl(device, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags)) }
    };
    if !large_segments {
        offload(0)?;
    } else if offload(TUN_F_CSUM_TSO | TUN_F_USO).is_err() {
        // Kernels before 6.2 reject the flags for UDP.
        offload(TUN_F_CSUM_TSO)?;
    }
    Ok(())
}

/// Moves the calling thread into new namespaces of the kinds in `flags` (network, mount).
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the unsafe flag of unshare is CLONE_FILES, which no caller passes: descriptors stay
    // shared between threads.
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Makes the kernel kill the child of `command` when the thread that started it ends, and starts the
/// child in the network namespace `space`, if given. The descriptor must stay open until the child runs.
pub(crate) fn prepare(command: &mut Command, space: Option<BorrowedFd<'_>>) {
    let parent = rustix::process::getpid();
    let space = space.map(|space| space.as_raw_fd());
    // SAFETY: between fork and exec only system calls are made, on plain numbers; nothing allocates,
    // locks or touches what other threads of the parent may hold.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                // The parent died before the death signal was set up.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(space) = space {
                // The caller keeps the descriptor open, and the forked child inherits it.
                let space = BorrowedFd::borrow_raw(space);
                move_into_link_name_space(space, Some(LinkNameSpaceType::Network))?;
            }
            Ok(())
        });
    }
}

/// Moves the calling thread into the network namespace `space`.
pub(crate) fn enter(space: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Resource usage of an ended process, including children that it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Exit status, or 128 plus the signal's number, as in shells.
    pub(crate) status: i32,
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Largest resident set of any one of these processes, in bytes.
    pub(crate) peak_rss: u64,
}

/// Waits for `child` to end and returns its resource usage. Nothing else may wait for this child.
pub(crate) fn wait(child: Pid) -> io::Result<Usage> {
    let mut status = 0;
    // SAFETY: `rusage` is a C struct of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the types that wait4 writes.
    while unsafe { libc::wait4(child.as_raw_nonzero().get(), &mut status, 0, &mut usage) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    let status = if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    };
    Ok(Usage {
        status,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        // Linux reports kibibytes.
        peak_rss: usage.ru_maxrss.unsigned_abs() * 1024,
    })
}
