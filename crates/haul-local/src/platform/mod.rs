//! Differences between systems.
//!
//! [`Platform`] lists the calls; [`linux`] implements them with those of Linux, [`portable`] with
//! POSIX alone. The portable one is compiled everywhere and tested on Linux too (see
//! `LocalOptions::portable`), so that it is ready for other systems and does not rot.

mod calls;
#[cfg(target_os = "linux")]
mod linux;
mod portable;

pub(crate) use calls::Platform;

/// The platform to use: the portable one if requested, or if this system has no other.
pub(crate) fn choose(portable: bool) -> Box<dyn Platform> {
    #[cfg(target_os = "linux")]
    if !portable {
        return Box::new(linux::Linux::default());
    }
    let _ = portable;
    Box::new(portable::Portable)
}
