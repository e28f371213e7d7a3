//! Packets as files that Wireshark and tcpdump read (pcapng).
//!
//! A [`Capture`] is an [`Observer`]: tap it in at any point of a network, once for each interface
//! that the file is to have. What travels in a simulated network is headers and, for bulk flows,
//! the mere length of a payload. The file has whole packets: a payload that nobody wrote is a
//! pattern that follows from its place in the stream, so that checksums are right and a
//! retransmission carries the bytes of its original.
//!
//! An interface of a pcapng file has one link type, and those here have IP packets. Where frames
//! without IP header pass, there is a second interface for them from the first one on, called as the
//! other with ` frames` behind it. Its link type is Ethernet's: the frame's own EtherType, stations
//! with addresses made from their IP addresses, and neither padding nor check sequence.

mod bytes;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};

use lasthop_units::Time;
use lasthop_wire::{ip, tcp, udp, unsplit};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use thiserror::Error;

use crate::net::{Datagram, Observer, Sight, TapPoint};
use bytes::Scratch;

/// Timestamps count units of ten to the minus ninth of a second.
const NANOSECONDS: u8 = 9;

/// Why a capture could not be written.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file itself.
    #[error("writing the capture: {0}")]
    Io(#[from] io::Error),
    /// What the writer makes of it.
    #[error("writing the capture: {0}")]
    Format(PcapError),
    /// A packet that no IP header can describe.
    #[error("a packet at {at} cannot be written: {reason}")]
    Packet {
        /// When it passed.
        at: Time,
        /// What is wrong.
        reason: PacketError,
    },
    /// An interface of another capture.
    #[error("the capture has no interface {0}")]
    NoInterface(u32),
}

/// What is wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PacketError {
    /// The IP header cannot say it.
    #[error(transparent)]
    Ip(#[from] ip::EmitError),
    /// The segment contradicts its payload.
    #[error(transparent)]
    Tcp(#[from] tcp::EmitError),
    /// The datagram is too long.
    #[error(transparent)]
    Udp(#[from] udp::EmitError),
    /// The segment cannot travel with a compressed header.
    #[error(transparent)]
    Compressed(#[from] unsplit::CompressError),
}

/// Which way a packet goes, seen from its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

impl Direction {
    /// The lowest bits of the packet's flags word.
    const fn flags(self) -> u32 {
        match self {
            Self::Inbound => 0b01,
            Self::Outbound => 0b10,
        }
    }
}

/// An interface of a [`Capture`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface(u32);

/// An interface as the file describes it.
struct Known {
    /// Its name, and what else is said of it.
    names: [String; 2],
    /// The one beside it that has the frames which pass the same place.
    frames: Option<Interface>,
}

/// When and where a packet was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting<'a> {
    /// When; the file's clock starts with the run.
    pub at: Time,
    /// On which interface.
    pub interface: Interface,
    /// Which way it went.
    pub direction: Direction,
    /// What else is to be said of it, such as why it was dropped.
    pub comment: Option<&'a str>,
}

/// A pcapng file in the making.
///
/// As an [`Observer`] it cannot answer with an error: the first one ends the capture, and
/// [`finish`](Self::finish) tells it.
pub struct Capture<W: Write> {
    writer: PcapNgWriter<BufWriter<W>>,
    /// Zero for no limit, as in the file.
    snaplen: u32,
    /// Each interface of the file, in the file's order.
    interfaces: Vec<Known>,
    watched: Vec<(TapPoint, Interface)>,
    scratch: Scratch,
    /// Packets offered to a link that has not said yet whether it takes them: in order, at most
    /// one for each interface.
    held: Vec<EnhancedPacketBlock<'static>>,
    failed: Option<CaptureError>,
}

impl<W: Write> Capture<W> {
    /// Begins a file on `out`. Of each packet the first `snaplen` bytes are kept, or all of them;
    /// checksums are those of the whole packet in either case.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn new(out: W, snaplen: Option<u32>) -> Result<Self, CaptureError> {
        // Little-endian everywhere: the same run gives the same file on every machine.
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed("lasthop"))],
            ..SectionHeaderBlock::default()
        };
        let writer = PcapNgWriter::with_section_header(BufWriter::new(out), section)
            .map_err(CaptureError::from_pcap)?;
        Ok(Self {
            writer,
            snaplen: snaplen.unwrap_or(0),
            interfaces: Vec::new(),
            watched: Vec::new(),
            scratch: Scratch::new(),
            held: Vec::new(),
            failed: None,
        })
    }

    /// Adds an interface called `name`; `description` says more to people.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn add_interface(
        &mut self,
        name: &str,
        description: &str,
    ) -> Result<Interface, CaptureError> {
        let names = [name, description].map(str::to_owned);
        self.describe(Known { names, frames: None }, DataLink::RAW)
    }

    fn describe(&mut self, known: Known, linktype: DataLink) -> Result<Interface, CaptureError> {
        let [name, description] = &known.names;
        let block = InterfaceDescriptionBlock {
            linktype,
            snaplen: self.snaplen,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfDescription(Cow::Borrowed(description)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.writer.write_pcapng_block(block).map_err(CaptureError::from_pcap)?;
        let interface = Interface(u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX));
        self.interfaces.push(known);
        Ok(interface)
    }

    /// The interface that takes the packet in place of `interface`: of a frame, the one for frames.
    fn interface_for(
        &mut self,
        interface: Interface,
        packet: &Datagram,
    ) -> Result<Interface, CaptureError> {
        let Some(known) = self.interfaces.get(interface.0 as usize) else {
            return Err(CaptureError::NoInterface(interface.0));
        };
        if !packet.body.is_frame() {
            return Ok(interface);
        }
        if let Some(frames) = known.frames {
            return Ok(frames);
        }
        let [name, description] = &known.names;
        let names = [format!("{name} frames"), description.clone()];
        let frames = self.describe(Known { names, frames: None }, DataLink::ETHERNET)?;
        self.interfaces[interface.0 as usize].frames = Some(frames);
        Ok(frames)
    }

    /// Adds an interface for what is seen at `point`; the network's own `tap` must name the same
    /// point. Packets seen at points without an interface are left out.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn watch(
        &mut self,
        point: TapPoint,
        name: &str,
        description: &str,
    ) -> Result<Interface, CaptureError> {
        let interface = self.add_interface(name, description)?;
        self.watched.push((point, interface));
        Ok(interface)
    }

    /// Writes a packet of a simulated network. One that a link corrupted has a wrong checksum in
    /// the file too.
    ///
    /// # Errors
    ///
    /// The packet is longer than IP allows, or the file cannot be written.
    pub fn record(&mut self, seen: Sighting<'_>, packet: &Datagram) -> Result<(), CaptureError> {
        let seen = Sighting { interface: self.interface_for(seen.interface, packet)?, ..seen };
        let built = self.scratch.datagram(packet);
        self.check(seen, built)?;
        self.write(seen)
    }

    /// Writes what is still held back and gives the file back.
    ///
    /// # Errors
    ///
    /// The first error that the capture met, if it met one.
    pub fn finish(mut self) -> Result<W, CaptureError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.release()?;
        Ok(self.writer.into_inner().into_inner().map_err(io::Error::from)?)
    }

    fn check(
        &self,
        seen: Sighting<'_>,
        built: Result<(), PacketError>,
    ) -> Result<(), CaptureError> {
        built.map_err(|reason| CaptureError::Packet { at: seen.at, reason })?;
        if seen.interface.0 as usize >= self.interfaces.len() {
            return Err(CaptureError::NoInterface(seen.interface.0));
        }
        Ok(())
    }

    /// Writes the packet built last, after all that is held.
    fn write(&mut self, seen: Sighting<'_>) -> Result<(), CaptureError> {
        self.release()?;
        let block = block(self.scratch.packet(), self.snaplen, seen);
        self.writer.write_pcapng_block(block).map_err(CaptureError::from_pcap)?;
        Ok(())
    }

    /// Keeps the packet built last until it is known whether its link takes it.
    fn hold(&mut self, seen: Sighting<'_>) -> Result<(), CaptureError> {
        if self.held.iter().any(|held| held.interface_id == seen.interface.0) {
            self.release()?;
        }
        self.held.push(block(self.scratch.packet(), self.snaplen, seen).into_owned());
        Ok(())
    }

    fn release(&mut self) -> Result<(), CaptureError> {
        for block in self.held.drain(..) {
            self.writer.write_pcapng_block(block).map_err(CaptureError::from_pcap)?;
        }
        Ok(())
    }

    fn observe(
        &mut self,
        at: Time,
        point: TapPoint,
        sight: Sight,
        packet: &Datagram,
    ) -> Result<(), CaptureError> {
        let watched = self.watched.iter().find(|(watched, _)| *watched == point);
        let Some(&(_, interface)) = watched else { return Ok(()) };
        let comment = packet.corrupted.then_some("corrupted on the way");
        let sent = Sighting { at, interface, direction: Direction::Outbound, comment };
        match sight {
            Sight::Left(_) => {
                self.record(Sighting { direction: Direction::Inbound, ..sent }, packet)
            }
            // What a link refuses has been offered to it before, and is one packet in the file.
            Sight::Entered(_) => {
                let sent = Sighting { interface: self.interface_for(interface, packet)?, ..sent };
                let built = self.scratch.datagram(packet);
                self.check(sent, built)?;
                self.hold(sent)
            }
            Sight::Refused(_, reason) => {
                let why = format!("dropped: {reason}");
                let own = self.interface_for(interface, packet)?;
                match self.held.iter_mut().find(|held| held.interface_id == own.0) {
                    Some(held) => held.options.push(EnhancedPacketOption::Comment(why.into())),
                    None => self.record(Sighting { comment: Some(&why), ..sent }, packet)?,
                }
                Ok(())
            }
            Sight::Unroutable => {
                self.record(Sighting { comment: Some("dropped: no route"), ..sent }, packet)
            }
        }
    }
}

/// The block for `packet`, of which `snaplen` bytes are kept unless that is zero.
fn block<'a>(packet: &'a [u8], snaplen: u32, seen: Sighting<'a>) -> EnhancedPacketBlock<'a> {
    let kept = match snaplen {
        0 => packet,
        n => packet.get(..n as usize).unwrap_or(packet),
    };
    let mut options = vec![EnhancedPacketOption::Flags(seen.direction.flags())];
    options.extend(seen.comment.map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text))));
    EnhancedPacketBlock {
        interface_id: seen.interface.0,
        timestamp: seen.at.since(Time::ZERO),
        // An IP packet and a tunnel's header around it: far below 2^32.
        original_len: packet.len() as u32,
        data: Cow::Borrowed(kept),
        options,
    }
}

impl<W: Write> Observer for Capture<W> {
    fn handle_packet(&mut self, now: Time, point: TapPoint, sight: Sight, packet: &Datagram) {
        if self.failed.is_none() {
            self.failed = self.observe(now, point, sight, packet).err();
        }
    }
}

impl CaptureError {
    fn from_pcap(error: PcapError) -> Self {
        match error {
            PcapError::IoError(error) => Self::Io(error),
            error => Self::Format(error),
        }
    }
}

#[cfg(test)]
mod tests;
