//! Programs that the kernel runs on packets (eBPF, bpf(2)): an [`Assembler`] of their instructions, the maps that
//! they share with processes, and their loading and attaching.
//!
//! There is no compiler and no library behind this: a program of ours is some hundred instructions, written by hand,
//! and the kernel's verifier proves each before it runs.

mod assembler;
mod map;
mod program;
mod sys;

use std::io;

use thiserror::Error;

pub use self::assembler::{
    AssembleError, Assembler, AtomicOp, Condition, Instruction, Op, Reg, Size, Source, helper,
};
pub use self::map::{HashMap, SharedArray};
pub use self::program::{Hook, Link, NEXT, Program, SHOT, TestRun};

/// Why the kernel did not do what was asked of its eBPF.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The process lacks the privilege.
    #[error("cannot {doing}: that needs CAP_BPF and CAP_NET_ADMIN (or root)")]
    NotPermitted {
        /// What was to be done.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {doing}: {source}")]
    Refused {
        /// What was to be done.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The verifier did not accept a program.
    #[error("the kernel refuses the program `{name}`: {source}\n{log}")]
    Verifier {
        /// The program's name.
        name: String,
        /// The kernel's error.
        source: io::Error,
        /// The end of what the verifier says.
        log: String,
    },
    /// No interface has this number.
    #[error("there is no interface {0} here (`ip link` lists them)")]
    NoInterface(u32),
    /// Programs are attached by links, which this kernel does not have.
    #[error(
        "this kernel cannot attach programs to an interface by links (TCX); that needs Linux 6.6"
    )]
    NoTcx,
    /// The descriptor is of something else.
    #[error("the descriptor is of no array that can be mapped: {0}")]
    NoArray(&'static str),
}

impl BpfError {
    /// Whether this user, or this kernel, has no such programs.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::NotPermitted { .. } | Self::NoTcx => true,
            Self::Refused { source, .. } => source.raw_os_error() == Some(libc::ENOSYS),
            _ => false,
        }
    }

    fn of(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted { doing, source },
            _ => Self::Refused { doing, source },
        }
    }
}
