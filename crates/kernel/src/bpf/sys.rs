//! The system call, and the parts of `union bpf_attr` (linux/bpf.h) that are used here. None has padding, since the
//! kernel refuses what it does not know.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// What is asked of the kernel (`enum bpf_cmd`), by its number.
#[derive(Clone, Copy)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgLoad = 5,
    ProgTestRun = 10,
    LinkCreate = 28,
}

/// A part of `union bpf_attr`.
///
/// # Safety
///
/// The type is one of the union's structures, or its beginning. Whoever passes one makes sure that what its pointers
/// point at lives until the call returns, is as long as the structure says, and may be written where the kernel writes.
pub(super) unsafe trait Attributes {}

/// `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
pub(super) struct MapCreate {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) map_flags: u32,
    pub(super) inner_map_fd: u32,
    pub(super) numa_node: u32,
    pub(super) map_name: [u8; 16],
}

/// `BPF_MAP_*_ELEM`.
#[repr(C)]
pub(super) struct MapElement {
    pub(super) map_fd: u32,
    pub(super) unused: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
pub(super) struct ProgLoad {
    pub(super) prog_type: u32,
    pub(super) insn_cnt: u32,
    pub(super) insns: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log_buf: u64,
    pub(super) kern_version: u32,
    pub(super) prog_flags: u32,
    pub(super) prog_name: [u8; 16],
}

/// `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
pub(super) struct ProgTestRun {
    pub(super) prog_fd: u32,
    pub(super) retval: u32,
    pub(super) data_size_in: u32,
    pub(super) data_size_out: u32,
    pub(super) data_in: u64,
    pub(super) data_out: u64,
    pub(super) repeat: u32,
    pub(super) duration: u32,
}

/// `BPF_LINK_CREATE`.
#[repr(C)]
pub(super) struct LinkCreate {
    pub(super) prog_fd: u32,
    pub(super) target_ifindex: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
}

// SAFETY: laid out as in linux/bpf.h.
unsafe impl Attributes for MapCreate {}
// SAFETY: as above.
unsafe impl Attributes for MapElement {}
// SAFETY: as above.
unsafe impl Attributes for ProgLoad {}
// SAFETY: as above.
unsafe impl Attributes for ProgTestRun {}
// SAFETY: as above.
unsafe impl Attributes for LinkCreate {}

/// bpf(2): what the kernel returns, which is never negative.
///
/// # Safety
///
/// As [`Attributes`] says of pointers.
pub(super) unsafe fn bpf<A: Attributes>(command: Command, attributes: &mut A) -> io::Result<i32> {
    let (attributes, size) = (std::ptr::from_mut(attributes), size_of::<A>() as libc::c_uint);
    // SAFETY: the kernel reads and writes so many bytes, which are integers; what they point at the caller vouches for.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, attributes, size) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(i32::try_from(result).unwrap_or(i32::MAX))
    }
}

/// As [`bpf`], for commands that give a new descriptor.
///
/// # Safety
///
/// As [`bpf`], and the command does give one.
pub(super) unsafe fn bpf_fd<A: Attributes>(
    command: Command,
    attributes: &mut A,
) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made it for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel keeps it: the first 15 of its letters, digits, underscores and points, with a zero behind.
pub(super) fn name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let permitted = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes().filter(permitted)) {
        *to = from;
    }
    bytes
}
