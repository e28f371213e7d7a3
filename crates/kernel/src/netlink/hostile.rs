//! Bytes that the kernel would not send, given to every reader of this module: what the fuzz target and
//! the property tests run.

use netlink_packet_core::NetlinkPayload;

use super::message::Message;
use super::picture::Picture;
use super::{
    Address, Interface, Prefix, Route, Rule, channel, monitor, neighbour, netfilter, owner, route,
    wireless,
};

/// Reads `bytes` as one read of a netlink socket; how many messages were in it. What the monitor makes
/// of them is told in as many events as there are differences, and then nothing more.
///
/// # Panics
///
/// A reader made something of them that cannot be.
pub fn read(bytes: &[u8]) -> usize {
    let (mut count, mut now, mut rerouted) = (0, Picture::default(), false);
    channel::messages(bytes, &mut |message| {
        count += 1;
        match message.payload {
            NetlinkPayload::InnerMessage(message) => {
                read_message(&message);
                monitor::take_note(&mut now, &mut rerouted, &message);
            }
            NetlinkPayload::Error(error) => {
                let _ = channel::verdict(&error, &|| "be told".to_owned());
            }
            _ => {}
        }
    });
    let mut told = Picture::default();
    let most = 2 * now.interfaces().count() + now.len_of_addresses() + 2;
    let events = std::iter::from_fn(|| told.step(&now)).take(most + 1).count();
    assert!(events <= most, "{events} events of {now:?}");
    count
}

/// Has all readers look at one message; which of them understood it, in the order of their types.
pub(super) fn read_message(message: &Message) -> [bool; 5] {
    let (interface, address) = (Interface::of(message), Address::of(message));
    let (route, rule) = (Route::of(message), Rule::of(message));
    let neighbour = neighbour::named(message);
    let _ = (route::Found::of(message), owner::parse_socket(message), netfilter::held(message));
    wireless::read(message);
    assert!(interface.as_ref().is_none_or(|interface| !interface.name.is_empty()));
    if let Some(route) = &route {
        assert!(is_possible(route.to), "{route:?}");
    }
    if let Some(rule) = &rule {
        assert!([rule.from, rule.to].into_iter().flatten().all(is_possible), "{rule:?}");
        assert_eq!(Rule::of(&rule.message(message.kind)).as_ref(), Some(rule), "said again");
    }
    assert!(address.is_none_or(|address| is_possible((address.ip, address.prefix))));
    [interface.is_some(), address.is_some(), route.is_some(), rule.is_some(), neighbour.is_some()]
}

fn is_possible((ip, length): Prefix) -> bool {
    length <= if ip.is_ipv6() { 128 } else { 32 }
}
