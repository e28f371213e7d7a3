//! Audio and video by RTP (RFC 3550) in one flow each way, as WebRTC bundles them (RFC 8843), through TUN devices.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::tun::{OWN, Scene};
use lasthop_kernel::netns::Netns;
use lasthop_lab::client::Stop;

const PORT: u16 = 5004;
/// Between packets of video; audio has every other moment.
const EVERY: Duration = Duration::from_millis(10);
const LASTING: Duration = Duration::from_secs(20);
/// What has not come so long after the last packet was sent is lost.
const LAST: Duration = Duration::from_secs(3);
/// Numbers pass their end on the way.
const FIRST: u16 = 65_400;
const HEADER: usize = 12;

/// One source of RTP.
#[derive(Clone, Copy, Debug)]
struct Source {
    ssrc: u32,
    payload_type: u8,
    /// Bytes of a packet, with its header.
    length: usize,
    /// Of its clock, from packet to packet.
    step: u32,
}

/// 20 ms of G.711 in each packet.
const AUDIO: Source = Source { ssrc: 0x00c0_ffee, payload_type: 0, length: 172, step: 160 };
const VIDEO: Source = Source { ssrc: 0xfeed_0001, payload_type: 96, length: 1100, step: 900 };

impl Source {
    /// The packet of this number, from 0.
    fn packet(self, n: u32) -> Vec<u8> {
        let number = FIRST.wrapping_add(n as u16);
        let mut packet = vec![0x80, self.payload_type];
        packet.extend(number.to_be_bytes());
        packet.extend(self.step.wrapping_mul(n).to_be_bytes());
        packet.extend(self.ssrc.to_be_bytes());
        let payload = (HEADER..self.length).map(|at| (n * 31 + at as u32 * 7 + self.ssrc) as u8);
        packet.extend(payload);
        packet
    }

    /// The number of a packet, from 0, if it is one of this source's and right in each byte.
    fn number(self, packet: &[u8]) -> Option<u32> {
        let number = u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]);
        let n = u32::from(number.wrapping_sub(FIRST));
        (packet == self.packet(n)).then_some(n)
    }
}

/// What came of each source, in the order in which it came.
type Heard = BTreeMap<u32, Vec<u32>>;

/// Sends both sources to `to` for a while; how many packets of audio and of video those were.
fn speak(socket: &UdpSocket, to: SocketAddr) -> [u32; 2] {
    let (start, mut sent) = (Instant::now(), [0; 2]);
    for moment in 0.. {
        if start.elapsed() >= LASTING {
            break;
        }
        let sources: &[Source] = if moment % 2 == 0 { &[AUDIO, VIDEO] } else { &[VIDEO] };
        for source in sources {
            let count = &mut sent[usize::from(source.ssrc == VIDEO.ssrc)];
            socket.send_to(&source.packet(*count), to).unwrap();
            *count += 1;
        }
        let next = start + EVERY * (moment + 1);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    sent
}

/// Takes what comes until it is `over`.
fn listen(socket: &UdpSocket, over: &Stop) -> Heard {
    let mut heard = Heard::new();
    let mut packet = [0; 2000];
    while !over.is_set() {
        let Ok(length) = socket.recv(&mut packet) else { continue };
        let known = [AUDIO, VIDEO]
            .into_iter()
            .find_map(|source| Some((source.ssrc, source.number(&packet[..length])?)));
        let (ssrc, n) = known.expect("a packet that nobody has sent");
        heard.entry(ssrc).or_default().push(n);
    }
    heard
}

fn socket(netns: &Netns, at: SocketAddr) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind(at).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket
}

/// Where a twentieth is lost, hardly any audio is missing either way, and the rest comes in order, once, unchanged.
#[test]
fn audio_and_video_cross_a_radio_that_loses_both_ways() {
    let Some(scene) = Scene::new(0.05) else { return };
    let _base = scene.base("address", "", "");
    let _mobile = scene.mobile("");
    let own: IpAddr = OWN[0].parse().unwrap();
    let [fixed, mobile] = [scene.fixed(0), own].map(|ip| SocketAddr::new(ip, PORT));
    let at_fixed = socket(&scene.lab.fixed, fixed);
    let at_mobile = socket(&scene.lab.mobile, mobile);
    let over = Stop::default();
    let ways = thread::scope(|scope| {
        let down = scope.spawn(|| listen(&at_mobile, &over));
        let up = scope.spawn(|| listen(&at_fixed, &over));
        let from_fixed = scope.spawn(|| speak(&at_fixed, mobile));
        let from_mobile = speak(&at_mobile, fixed);
        let from_fixed = from_fixed.join().unwrap();
        thread::sleep(LAST);
        over.set();
        [(from_fixed, down.join().unwrap()), (from_mobile, up.join().unwrap())]
    });
    let (mut spoken, mut came) = (0, 0);
    for (sent, heard) in &ways {
        for source in [AUDIO, VIDEO] {
            let in_order = heard[&source.ssrc].is_sorted_by(|a, b| a < b);
            assert!(in_order, "{source:?}: in order, none twice");
        }
        spoken += sent[0];
        came += heard[&AUDIO.ssrc].len() as u32;
    }
    let lost = 1.0 - f64::from(came) / f64::from(spoken);
    assert!(lost <= 0.005, "{lost} of {spoken} packets of audio");
    let carried = scene.tun("mobile");
    assert!(carried.from_kernel > 1000 && carried.to_kernel > 1000, "{carried:?}");
}
