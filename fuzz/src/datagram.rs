//! Every decoder of the outer form, on any bytes.

use lasthop_wire::datagram::{
    CookieReply, Data, HandshakeInit, HandshakeReply, Hello, Kind, PlainInit, PlainReply, Token,
    Transit, TransitCheck, recover_number, reply_receiver,
};

/// One input.
pub fn run(bytes: &[u8]) {
    let _ = Kind::of(bytes);
    let _ = reply_receiver(bytes);
    if let Ok(hello) = Hello::parse(bytes) {
        let mut out = [0; Hello::MAX_LEN];
        let len = hello.emit(&mut out).expect("room for the longest");
        assert_eq!(Hello::parse(&out[..len]), Ok(hello));
    }
    if let Ok(view) = HandshakeInit::new_checked(bytes) {
        let (message, shown) = view.split_cookie_mac();
        let (covered, mac) = view.split_mac();
        assert_eq!(covered.len() + mac.len(), message.len());
        assert_eq!(message.len() + shown.len(), bytes.len());
        let _ = (view.path(), view.noise());
    }
    if let Ok(reply) = CookieReply::parse(bytes) {
        assert_eq!(
            CookieReply::parse(&reply.to_bytes()).map(|again| again.sealed),
            Ok(reply.sealed)
        );
    }
    if let Ok(token) = Token::parse(bytes) {
        assert_eq!(Token::parse(&token.to_bytes()), Ok(token));
    }
    if let Ok((header, inner)) = Transit::parse(bytes) {
        // The path is any byte, and what follows is somebody else's.
        assert_eq!([&header.to_bytes()[..], inner].concat(), bytes);
    }
    if let Ok(check) = TransitCheck::parse(bytes) {
        assert_eq!(TransitCheck::parse(&check.to_bytes()), Ok(check));
    }
    if let Ok(view) = HandshakeReply::new_checked(bytes) {
        let (message, mac) = view.split_mac();
        assert_eq!(message.len() + mac.len(), bytes.len());
        let _ = (view.path(), view.receiver(), view.noise());
    }
    let mut out = [0; 512];
    if let Ok(init) = PlainInit::parse(bytes) {
        let len = init.emit(&mut out).expect("room for the longest");
        assert_eq!(PlainInit::parse(&out[..len]), Ok(init));
    }
    if let Ok(reply) = PlainReply::parse(bytes) {
        let len = reply.emit(&mut out).expect("room for the longest");
        assert_eq!(PlainReply::parse(&out[..len]), Ok(reply));
    }
    let mut datagram = bytes.to_vec();
    if let Ok(mut view) = Data::new_checked(&mut datagram[..]) {
        let header = view.header();
        assert_eq!(view.split_mut().0, header.to_bytes());
        let highest = u64::from(header.receiver) << 16;
        assert_eq!(recover_number(header.number_low, Some(highest)) as u32, header.number_low);
    }
}
