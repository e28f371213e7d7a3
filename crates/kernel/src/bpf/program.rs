//! Programs that see packets (`BPF_PROG_TYPE_SCHED_CLS`): loaded, tried, and attached to interfaces.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::sys::{self, Command, LinkCreate, ProgLoad, ProgTestRun};
use super::{BpfError, Instruction};

/// Returned by a program that has no objection to a packet: the next one is asked (`TCX_NEXT`).
pub const NEXT: i32 = -1;
/// Returned by a program that drops a packet (`TCX_DROP`).
pub const SHOT: i32 = 2;

// linux/bpf.h
const TYPE_SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// None of the functions in [`helper`](super::helper) is for programs under the kernel's own licence only.
const LICENSE: &std::ffi::CStr = c"MIT OR Apache-2.0";
/// Bytes of the verifier's words that are asked for, and those of their end that are told.
const LOG_ROOM: usize = 1 << 20;
const LOG_TOLD: usize = 4096;
/// By so many bytes a program may lengthen a packet in a test.
const GROWTH: usize = 256;

/// A program in the kernel. It stays as long as this or one of its links.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// Which packets of an interface a program sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Those that it receives.
    Ingress,
    /// Those that it sends, before queueing.
    Egress,
}

/// What a program did with a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRun {
    /// What it returned.
    pub verdict: i32,
    /// The packet afterwards, from its Ethernet header on.
    pub packet: Vec<u8>,
    /// How long one run took, on average.
    pub time: Duration,
}

impl Program {
    /// Has the kernel verify and take a program.
    ///
    /// # Errors
    ///
    /// No permission, or the verifier's words.
    pub fn load(name: &str, instructions: &[Instruction]) -> Result<Self, BpfError> {
        let source = match load(name, instructions, &mut []) {
            Ok(fd) => return Ok(Self { fd }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return Err(BpfError::of("load a program")(error));
            }
            Err(error) => error,
        };
        // Why not is written down only if asked for, and costs time.
        let mut log = vec![0; LOG_ROOM];
        let _ = load(name, instructions, &mut log);
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[end.saturating_sub(LOG_TOLD)..end]);
        Err(BpfError::Verifier { name: name.to_owned(), source, log: log.trim().to_owned() })
    }

    /// Runs the program `repeat` times on one packet, which begins with an Ethernet header; what one run changes the
    /// next finds.
    ///
    /// # Errors
    ///
    /// The kernel cannot, or the packet is too short or too long.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<TestRun, BpfError> {
        let refused = BpfError::of("try a program");
        let mut out = vec![0; packet.len() + GROWTH];
        let size = |bytes: usize| {
            u32::try_from(bytes).map_err(|_| refused(io::ErrorKind::InvalidInput.into()))
        };
        let mut attributes = ProgTestRun {
            prog_fd: self.number(),
            data_size_in: size(packet.len())?,
            data_size_out: size(out.len())?,
            data_in: packet.as_ptr().expose_provenance() as u64,
            data_out: out.as_mut_ptr().expose_provenance() as u64,
            repeat,
            ..ProgTestRun::default()
        };
        // SAFETY: the kernel reads the packet and writes into `out`, whose sizes are given.
        unsafe { sys::bpf(Command::ProgTestRun, &mut attributes) }.map_err(&refused)?;
        out.truncate(attributes.data_size_out as usize);
        let time = Duration::from_nanos(attributes.duration.into());
        Ok(TestRun { verdict: attributes.retval.cast_signed(), packet: out, time })
    }

    /// From here on, and until the link is dropped, the program sees what passes the interface. The number is of the
    /// calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`BpfError::NoTcx`] before Linux 6.6; no permission; no such interface.
    pub fn attach(&self, interface: u32, hook: Hook) -> Result<Link, BpfError> {
        let mut attributes = LinkCreate {
            prog_fd: self.number(),
            target_ifindex: interface,
            attach_type: match hook {
                Hook::Ingress => TCX_INGRESS,
                Hook::Egress => TCX_EGRESS,
            },
            flags: 0,
        };
        // SAFETY: there are no pointers, and the command gives a descriptor.
        let made = unsafe { sys::bpf_fd(Command::LinkCreate, &mut attributes) };
        made.map(|fd| Link { fd }).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => BpfError::NoInterface(interface),
            // So an older kernel says that it does not know the kind of attachment.
            Some(libc::EINVAL) => BpfError::NoTcx,
            _ => BpfError::of("attach a program to an interface")(error),
        })
    }

    fn number(&self) -> u32 {
        self.fd.as_raw_fd().cast_unsigned()
    }
}

/// A program's attachment to an interface, which ends when this is dropped, or with the interface.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Loads a program; what the verifier says goes to `log`, if that has room.
fn load(name: &str, instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let log_buf = if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 };
    let mut attributes = ProgLoad {
        prog_type: TYPE_SCHED_CLS,
        insn_cnt: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        insns: instructions.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        log_buf,
        prog_name: sys::name(name),
        ..ProgLoad::default()
    };
    // SAFETY: instructions and licence are only read; `log` is written, and its size given. The command gives a
    // descriptor.
    unsafe { sys::bpf_fd(Command::ProgLoad, &mut attributes) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::super::{Assembler, Condition, HashMap, Op, Reg, Size, helper};
    use super::*;
    use crate::netns::Netns;

    fn loaded(name: &str, assembler: Assembler) -> Option<Program> {
        let program = Program::load(name, &assembler.finish().unwrap());
        lasthop_testing::or_skip(program, BpfError::is_unavailable)
    }

    fn that_returns(verdict: i32) -> Assembler {
        let mut a = Assembler::new();
        a.mov(Reg::R0, verdict);
        a.exit();
        a
    }

    #[test]
    fn a_program_changes_the_packet_it_is_tried_on() {
        let mut a = Assembler::new();
        a.store(Size::Word, Reg::R10, -4, 0x0101_0101);
        a.mov(Reg::R2, 20);
        a.mov(Reg::R3, Reg::R10);
        a.alu64(Op::Add, Reg::R3, -4);
        a.mov(Reg::R4, 4);
        a.mov(Reg::R5, 0);
        a.call(helper::SKB_STORE_BYTES);
        a.jump_if(Condition::Ne, Reg::R0, 0, "failed");
        a.mov(Reg::R0, NEXT);
        a.exit();
        a.bind("failed");
        a.mov(Reg::R0, SHOT);
        a.exit();
        let Some(program) = loaded("change", a) else { return };
        let packet = [0; 60];
        let run = program.test_run(&packet, 1).unwrap();
        let mut expected = packet;
        expected[20..24].fill(1);
        assert_eq!((run.verdict, &run.packet[..]), (NEXT, &expected[..]));
        assert!(program.test_run(&[], 1).is_err(), "there is no Ethernet header");
    }

    #[test]
    fn a_program_reads_a_map() {
        let Some(map) =
            lasthop_testing::or_skip(HashMap::<4, 4>::create("test", 1), BpfError::is_unavailable)
        else {
            return;
        };
        let mut a = Assembler::new();
        a.store(Size::Word, Reg::R10, -4, 9);
        a.load_map(Reg::R1, &map);
        a.mov(Reg::R2, Reg::R10);
        a.alu64(Op::Add, Reg::R2, -4);
        a.call(helper::MAP_LOOKUP_ELEM);
        a.jump_if(Condition::Eq, Reg::R0, 0, "absent");
        a.load(Size::Word, Reg::R0, Reg::R0, 0);
        a.bind("absent");
        a.exit();
        let program = loaded("lookup", a).unwrap();
        let run = || program.test_run(&[0; 60], 1).unwrap().verdict;
        assert_eq!(run(), 0);
        map.insert(&9_u32.to_ne_bytes(), &77_u32.to_ne_bytes()).unwrap();
        assert_eq!(run(), 77);
    }

    #[test]
    fn the_verifiers_words_are_told() {
        if loaded("good", that_returns(0)).is_none() {
            return;
        }
        let mut bad = Assembler::new();
        bad.exit();
        let error = Program::load("bad", &bad.finish().unwrap()).unwrap_err().to_string();
        assert!(error.contains("`bad`") && error.contains("R0 !read_ok"), "{error}");
    }

    #[test]
    fn a_link_lasts_as_long_as_it_is_kept() {
        let Some(netns) = Netns::for_test() else { return };
        let Some(program) = loaded("drop", that_returns(SHOT)) else { return };
        netns
            .enter(|| {
                let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
                receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                let send =
                    |word: &[u8]| sender.send_to(word, receiver.local_addr().unwrap()).unwrap();
                let link = program.attach(1, Hook::Egress).unwrap();
                send(b"dropped");
                drop(link);
                send(b"passed");
                let mut word = [0; 16];
                let length = receiver.recv(&mut word).unwrap();
                assert_eq!(&word[..length], b"passed");
                let error = program.attach(4_000_000, Hook::Ingress).unwrap_err();
                assert!(matches!(error, BpfError::NoInterface(4_000_000)), "{error}");
            })
            .unwrap();
    }
}
