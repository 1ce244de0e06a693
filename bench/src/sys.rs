//! The system calls that no safe wrapper covers, each with its argument.
//!
//! Everything else of this crate is safe code.
#![expect(unsafe_code, reason = "system calls without a safe wrapper live here and nowhere else")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::ioctl::{IntegerSetter, Setter, ioctl, opcode};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// `struct ifreq` as far as `TUNSETIFF` reads it: a name of up to 15 bytes, flags, the rest zero.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// `TUNSETIFF` and `TUNSETOFFLOAD`, linux/if_tun.h. Both are declared with `int` and take something
/// else: a pointer to an `ifreq`, and a plain number.
const TUNSETIFF: u32 = opcode::write::<i32>(b'T', 202) as u32;
const TUNSETOFFLOAD: u32 = opcode::write::<u32>(b'T', 208) as u32;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

/// Checksums left to the other side, and TCP segments of IPv4 and IPv6 passed whole.
const TUN_F_CSUM_TSO: usize = 0x01 | 0x02 | 0x04;
/// UDP segments passed whole, since Linux 6.2.
const TUN_F_USO: usize = 0x20 | 0x40;

/// Makes `device`, an open `/dev/net/tun`, the TUN interface `name` of the calling thread's network
/// namespace. Every packet has a `virtio_net_hdr` of 10 bytes before it. With `large_segments` the
/// kernel hands over up to 64 KiB at once.
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
    // SAFETY: TUNSETIFF reads a `struct ifreq` of 40 bytes, which `InterfaceRequest` is, and keeps no
    // pointer to it.
    unsafe { ioctl(device, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) }?;
    let offload = |flags: usize| {
        // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
        unsafe { ioctl(device, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags)) }
    };
    if !large_segments {
        offload(0)?;
    } else if offload(TUN_F_CSUM_TSO | TUN_F_USO).is_err() {
        // Older kernels know no segments of UDP.
        offload(TUN_F_CSUM_TSO)?;
    }
    Ok(())
}

/// Puts the calling thread into network and mount namespaces of its own, as `flags` says.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the unsafe flag of unshare is CLONE_FILES, which no caller passes: descriptors stay
    // shared between threads.
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Lets the process that `command` starts die with the thread that starts it, and begin in the
/// network namespace `space`, where one is given. The descriptor must stay open until then.
pub(crate) fn prepare(command: &mut Command, space: Option<BorrowedFd<'_>>) {
    let parent = rustix::process::getpid();
    let space = space.map(|space| space.as_raw_fd());
    // SAFETY: between fork and exec only system calls are made, on plain numbers; nothing allocates,
    // locks or touches what other threads of the parent may hold.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                // The parent died before its death could be heard of.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(space) = space {
                // The caller keeps the namespace's descriptor open, and a fork has it too.
                let space = BorrowedFd::borrow_raw(space);
                move_into_link_name_space(space, Some(LinkNameSpaceType::Network))?;
            }
            Ok(())
        });
    }
}

/// Puts the calling thread into the network namespace `space`.
pub(crate) fn enter(space: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// What an ended process used, its waited-for children included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// Exit status, or the signal's number and 128 as shells count.
    pub(crate) status: i32,
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Largest resident set of one of them, in bytes.
    pub(crate) peak_rss: u64,
}

/// Waits for a child that nothing else waits for.
pub(crate) fn wait(child: Pid) -> io::Result<Used> {
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
    Ok(Used {
        status,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        // Linux counts kibibytes.
        peak_rss: usage.ru_maxrss.unsigned_abs() * 1024,
    })
}
