use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::collection::vec as some;
use proptest::prelude::*;

use super::*;
use crate::ip::{self, Addresses, Protocol};

fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
    let ip = |last: u8| -> IpAddr {
        match v6 {
            true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
            false => Ipv4Addr::new(192, 0, 2, last).into(),
        }
    };
    (SocketAddr::new(ip(1), 80), SocketAddr::new(ip(2), 40_000))
}

/// What is in an IP packet beside addresses and ports.
#[derive(Clone, Debug)]
struct Said {
    ttl: u8,
    traffic_class: u8,
    id: u16,
    dont_fragment: bool,
    label: u32,
    /// The TCP header from the sequence number on; the data offset is put right.
    fields: [u8; 16],
    options: Vec<u32>,
    payload: Vec<u8>,
}

fn packet(v6: bool, said: &Said) -> Vec<u8> {
    let (src, dst) = ends(v6);
    let addresses = Addresses::new(src.ip(), dst.ip()).unwrap();
    let header = ip::Header {
        ttl: said.ttl,
        traffic_class: said.traffic_class,
        id: said.id,
        dont_fragment: said.dont_fragment,
        ..ip::Header::new(addresses, Protocol::TCP)
    };
    let mut out = Vec::new();
    header.emit(20 + 4 * said.options.len() + said.payload.len(), &mut out).unwrap();
    if v6 {
        out[1] |= (said.label >> 16 & 0x0f) as u8;
        out[2..4].copy_from_slice(&(said.label as u16).to_be_bytes());
    }
    out.extend_from_slice(&src.port().to_be_bytes());
    out.extend_from_slice(&dst.port().to_be_bytes());
    let mut fields = said.fields;
    fields[8] = fields[8] & 0x0f | (5 + said.options.len() as u8) << 4;
    out.extend_from_slice(&fields);
    out.extend(said.options.iter().flat_map(|word| word.to_be_bytes()));
    out.extend_from_slice(&said.payload);
    out
}

fn plain() -> Said {
    Said {
        ttl: 64,
        traffic_class: 0,
        id: 0,
        dont_fragment: true,
        label: 0,
        fields: [1, 2, 3, 4, 5, 6, 7, 8, 0, 0x10, 0x40, 0, 0xab, 0xcd, 0, 0],
        options: Vec::new(),
        payload: b"data".to_vec(),
    }
}

fn compressed(packet: &[u8], header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    compress(packet, header, &mut out).unwrap();
    out
}

/// ALT-4, ALT-5: sequence, acknowledgement, window and checksum in full; neither addresses nor
/// ports.
#[test]
fn a_data_packet_is_laid_out_as_it_is_drawn() {
    let header = Header { cid: 0x0102, cycle: true, ..Header::default() };
    let bytes = compressed(&packet(false, &plain()), &header);
    assert_eq!(
        bytes,
        [
            &[0xa1, 0x04, 1, 2][..],
            &[1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10, 0x40, 0, 0xab, 0xcd],
            &[64],
            b"data",
        ]
        .concat()
    );
    assert_eq!(bytes.len() as u32, header.header_len() + 4);
}

/// ALT-6, ALT-7: a request and an offer follow the fixed part.
#[test]
fn what_halves_say_follows_in_its_order() {
    let header = Header {
        cid: 9,
        reply: true,
        repeat: true,
        request: Some(Request { ack: Seq(0x0a0b_0c0d), nis: Seq(0x0a0b_0c10) }),
        offer: Some(0x7788),
        ..Header::default()
    };
    let bytes = compressed(&packet(false, &plain()), &header);
    assert_eq!(bytes[..4], [0xae, 0x24, 0, 9]);
    assert_eq!(bytes[19..29], [0x0a, 0x0b, 0x0c, 0x0d, 0x0a, 0x0b, 0x0c, 0x10, 0x77, 0x88]);
    assert_eq!(bytes.len() as u32, header.header_len() + 4);
    assert_eq!(parse(&bytes), Ok(header));
}

#[test]
fn what_would_lose_something_is_sent_as_it_is() {
    let header = Header::default();
    let mut out = Vec::new();
    let whole = packet(false, &plain());

    let mut fragment = whole.clone();
    fragment[6] = 0x20;
    fragment[10] = fragment[10].wrapping_add(0x20);
    let refused = compress(&fragment, &header, &mut out);
    assert_eq!(refused, Err(CompressError::Ip(ip::ParseError::Fragment)));

    let mut reserved = whole.clone();
    reserved[6] |= 0x80;
    reserved[10] = reserved[10].wrapping_sub(0x80);
    assert_eq!(compress(&reserved, &header, &mut out), Err(CompressError::Extended));

    let mut optional = whole[..20].to_vec();
    optional.extend_from_slice(&[1, 1, 1, 0]);
    optional.extend_from_slice(&whole[20..]);
    optional[0] = 0x46;
    optional[3] += 4;
    optional[10..12].fill(0);
    let sum = crate::checksum::of(&optional[..24]);
    optional[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(compress(&optional, &header, &mut out), Err(CompressError::Extended));

    let udp = ip::Header::new(
        Addresses::new(ends(false).0.ip(), ends(false).1.ip()).unwrap(),
        Protocol::UDP,
    );
    let mut other = Vec::new();
    udp.emit(0, &mut other).unwrap();
    assert_eq!(compress(&other, &header, &mut out), Err(CompressError::Protocol(17)));

    let tcp = ip::Header { protocol: Protocol::TCP, ..udp };
    let mut short = Vec::new();
    tcp.emit(13, &mut short).unwrap();
    short.extend_from_slice(&[0x50; 13]);
    let truncated = CompressError::Truncated { found: 13, least: 20 };
    assert_eq!(compress(&short, &header, &mut out), Err(truncated));
    assert!(out.is_empty());
}

#[test]
fn what_is_no_compressed_packet_is_named() {
    let bytes = compressed(&packet(false, &plain()), &Header::default());
    assert_eq!(parse(&packet(false, &plain())), Err(ParseError::Mark(0x45)));
    for cut in 0..19 {
        assert!(matches!(parse(&bytes[..cut]), Err(ParseError::Truncated(_))), "{cut}");
    }
    let mut offset = bytes.clone();
    offset[12] = 0x40;
    assert_eq!(parse(&offset), Err(ParseError::HeaderLength(4)));
    offset[12] = 0x70;
    assert_eq!(parse(&offset), Err(ParseError::Truncated("TCP options")));
    let (src, dst) = (ends(false).0, ends(true).1);
    let mut out = Vec::new();
    assert!(matches!(expand(&bytes, (src, dst), &mut out), Err(ParseError::Ip(_))));
    assert!(out.is_empty());
}

fn said() -> impl Strategy<Value = Said> {
    let ip = any::<(u8, u8, u16, bool, u32)>();
    (ip, any::<[u8; 16]>(), some(any::<u32>(), 0..=10), some(any::<u8>(), 0..200)).prop_map(
        |((ttl, traffic_class, id, dont_fragment, label), fields, options, payload)| Said {
            ttl,
            traffic_class,
            id,
            dont_fragment,
            label: label % (1 << 20) * (label >> 31),
            fields,
            options,
            payload,
        },
    )
}

fn headers() -> impl Strategy<Value = Header> {
    any::<(u16, [bool; 3], Option<(u32, u32)>, Option<u16>)>().prop_map(
        |(cid, [cycle, reply, repeat], request, offer)| Header {
            cid,
            cycle,
            reply,
            repeat,
            request: request.map(|(ack, nis)| Request { ack: Seq(ack), nis: Seq(nis) }),
            offer,
        },
    )
}

proptest! {
    /// ALT-5: nothing that an end sees changes on the way over the hop, whatever the packet; of a
    /// packet that may not be fragmented no end sees the identification.
    #[test]
    fn a_packet_comes_out_as_it_went_in(v6: bool, mut said in said(), header in headers()) {
        let whole = packet(v6, &said);
        let bytes = compressed(&whole, &header);
        prop_assert_eq!(parse(&bytes), Ok(header));
        let mut out = Vec::new();
        prop_assert_eq!(expand(&bytes, ends(v6), &mut out), Ok(header));
        if said.dont_fragment {
            said.id = 0;
        }
        prop_assert_eq!(&out, &packet(v6, &said));
        prop_assert!(bytes.len() < whole.len() + 10, "request and offer aside it is shorter");
    }

    /// ALT-4: a length that is told beforehand is the one on the hop.
    #[test]
    fn the_length_is_known_beforehand(header in headers(), words in 0_usize..=10) {
        let said = Said { options: alloc::vec![0; words], ..plain() };
        let bytes = compressed(&packet(false, &said), &header);
        prop_assert_eq!(bytes.len(), header.header_len() as usize + 4 * words + 4);
    }

    #[test]
    fn arbitrary_bytes_make_nothing_panic(mut bytes in some(any::<u8>(), 0..80), v6: bool) {
        let mut out = Vec::new();
        let _ = compress(&bytes, &Header::default(), &mut out);
        if let Some(first) = bytes.first_mut() {
            *first = MARK | *first & 0x0f;
        }
        let _ = parse(&bytes);
        let _ = expand(&bytes, ends(v6), &mut out);
    }

    #[test]
    fn no_cut_header_is_taken_for_a_whole_one(said in said(), header in headers(), cut in 0_usize..100) {
        let bytes = compressed(&packet(false, &said), &header);
        let headers = bytes.len() - said.payload.len();
        let cut = cut.min(headers - 1);
        let is_truncated = matches!(parse(&bytes[..cut]), Err(ParseError::Truncated(_)));
        prop_assert!(is_truncated);
    }
}

/// What else stands in the bytes of the class and of the label is not taken for either.
#[test]
fn class_and_label_keep_to_their_bits() {
    let said = Said { traffic_class: 0xb9, label: 0xa_bcde, ..plain() };
    let whole = packet(true, &said);
    let bytes = compressed(&whole, &Header::default());
    assert_eq!(bytes[1] & 0x03, 1, "congestion is told with the flags");
    assert_eq!(bytes[19..23], [0xb8, 0x0a, 0xbc, 0xde], "class without it, then the label");
    let mut noisy = bytes.clone();
    noisy[19] |= 0x03;
    noisy[20] |= 0xf0;
    for bytes in [&bytes, &noisy] {
        let mut out = Vec::new();
        expand(bytes, ends(true), &mut out).unwrap();
        assert_eq!(out, whole);
    }
}

/// A packet is appended: what stands before it stays, and the label finds its place behind it.
#[test]
fn a_packet_is_expanded_behind_what_is_there() {
    let whole = packet(true, &Said { label: 0x1_2345, ..plain() });
    let bytes = compressed(&whole, &Header::default());
    let mut out = b"before".to_vec();
    expand(&bytes, ends(true), &mut out).unwrap();
    assert_eq!(out, [b"before", &whole[..]].concat());
}

/// An extension of IPv6's before TCP would be lost.
#[test]
fn an_extension_header_is_sent_as_it_is() {
    let mut whole = packet(true, &plain());
    // Hop-by-hop options of eight bytes, then TCP.
    whole[6] = 0;
    let len = u16::from_be_bytes([whole[4], whole[5]]) + 8;
    whole[4..6].copy_from_slice(&len.to_be_bytes());
    whole.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    let mut out = Vec::new();
    assert!(compress(&whole, &Header::default(), &mut out).is_err());
    assert!(out.is_empty());
}

/// A TCP header that says to be shorter than any is no TCP header, on either side.
#[test]
fn a_data_offset_below_five_words_is_refused() {
    for words in 0..5u8 {
        let mut whole = packet(false, &plain());
        whole[32] = words << 4;
        let mut out = Vec::new();
        let refused = compress(&whole, &Header::default(), &mut out);
        let least = CompressError::Truncated { found: usize::from(words) * 4, least: 20 };
        assert_eq!((refused, out.is_empty()), (Err(least), true));
        let mut bytes = compressed(&packet(false, &plain()), &Header::default());
        bytes[12] = words << 4;
        assert_eq!(parse(&bytes), Err(ParseError::HeaderLength(words)));
    }
}
