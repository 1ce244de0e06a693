//! What differs between systems.
//!
//! [`Platform`] lists it; [`linux`] has the fast way of Linux, [`portable`] does the same with
//! POSIX calls alone. The portable one is compiled everywhere and tested on Linux too (see
//! `LocalOptions::portable`), so that it is ready for other systems and does not rot.

mod calls;
#[cfg(target_os = "linux")]
mod linux;
mod portable;

pub(crate) use calls::Platform;

/// The platform to use: the portable one if asked, or if there is no other for this system.
pub(crate) fn choose(portable: bool) -> Box<dyn Platform> {
    #[cfg(target_os = "linux")]
    if !portable {
        return Box::new(linux::Linux::default());
    }
    let _ = portable;
    Box::new(portable::Portable)
}
