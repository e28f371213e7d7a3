//! Messages to operators about failed handshakes. A base never sends the reason, for the caller might
//! be anybody: the base's own log has it, and the mobile can only report what it received instead.

use lasthop_hop::seal::PublicKey;
use lasthop_hop::{Refusal, Refused, Unreachable};

/// Who asks for an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A mobile.
    Mobile,
    /// Another base.
    Base,
}

/// By what a base knows the caller of a sealed handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Introduction {
    /// Who asks.
    pub(crate) caller: Caller,
    /// Its public key.
    pub(crate) own: PublicKey,
}

/// Why a handshake failed: what came instead of the base's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeFailure {
    /// Nothing.
    Nothing,
    /// An error that the network reported.
    Network(Unreachable),
    /// A packet that is not of a base with the expected key.
    Strange,
    /// A reply to this handshake that does not open.
    Unopened,
    /// The connection was closed without an answer.
    Goodbye,
}

/// Why a base that never answered is not reached, and what to look at first. `at` is where it should
/// be; `introduction` is absent where there is no seal.
pub(crate) fn unanswered(
    heard: HandshakeFailure,
    at: &str,
    introduction: Option<Introduction>,
) -> String {
    const SAME: &str = "both ends need the same `hop` and `seal`";
    let (theirs, ours) = match introduction {
        Some(Introduction { caller: Caller::Mobile, own }) => (
            format!("its `allow` must have {own}, `base_key` must be its key, and {SAME}"),
            "`base_key` is the key of the base there",
        ),
        Some(Introduction { caller: Caller::Base, own }) => (
            format!("its [[peers]] must have {own}, and `key` in [[peers]] here must be its key"),
            "`key` in [[peers]] is the key of the base there",
        ),
        None => (SAME.to_owned(), "it is a base"),
    };
    match heard {
        HandshakeFailure::Nothing => format!(
            "nothing comes back from {at}: check that a base runs there and that a firewall lets \
             both ways pass; if so the base refuses, and its log says why ({theirs})"
        ),
        HandshakeFailure::Network(what) => {
            let first = match what {
                Unreachable::Port => "check that the base runs and that the port is right",
                Unreachable::Prohibited => "check the firewalls on the way",
                Unreachable::Host => "check the address, and that the host runs",
                Unreachable::Network => "check the address",
                Unreachable::NextHop => "check the link of this host, and the router there",
                Unreachable::NoRoute => "check that this host is on a network",
            };
            format!("{what} ({at}): {first}")
        }
        HandshakeFailure::Strange => {
            format!("what comes back from {at} does not open: check that {ours}, and that {SAME}")
        }
        HandshakeFailure::Unopened => {
            let there = match introduction {
                Some(Introduction { caller: Caller::Base, .. }) => "in [[peers]] here and there",
                _ => "here and in its `allow`",
            };
            format!(
                "the base at {at} replies, and the reply does not open: compare the pre-shared keys \
                 (`psk` {there}), of which both ends need the same, or none"
            )
        }
        HandshakeFailure::Goodbye => {
            format!("{at} closes the connection: the base refuses, and its log says why ({theirs})")
        }
    }
}

/// One line on a handshake that a base did not answer. `own` is its key, where it has one.
pub(crate) fn refused(
    caller: Caller,
    refused: &Refused<String>,
    own: Option<&PublicKey>,
) -> String {
    let Refused { from, why, again, others } = refused;
    let own = own.map_or_else(|| "this base's".to_owned(), ToString::to_string);
    let what = match (why, caller) {
        (Refusal::OtherBase, Caller::Mobile) => format!(
            "a handshake from {from} is not for this base's key: the mobile's `base_key` is not \
             {own}"
        ),
        (Refusal::OtherBase, Caller::Base) => format!(
            "a handshake from {from} is not for this base's key: this base's `key` in the other's \
             [[peers]] is not {own}"
        ),
        (Refusal::Stranger(key), Caller::Mobile) => {
            format!("the mobile {key} from {from} is not allowed: add it to `allow` if it may come")
        }
        (Refusal::Stranger(key), Caller::Base) => {
            format!("the base {key} from {from} is not known: add it to [[peers]] if it may come")
        }
        (Refusal::Unconfirmed(key), Caller::Mobile) => format!(
            "the mobile {key} from {from} makes nothing of the replies: compare its `psk` with the \
             one in `allow`; if both have the same or none, the replies do not arrive"
        ),
        (Refusal::Unconfirmed(key), Caller::Base) => format!(
            "the base {key} from {from} makes nothing of the replies: compare `psk` in its [[peers]] \
             and in these; if both have the same or none, the replies do not arrive"
        ),
        (Refusal::OtherSeal, _) => {
            format!(
                "{from} asks with another `seal` than this base's: both ends must have the same"
            )
        }
        (Refusal::OtherTransport, _) => {
            format!("{from} asks for another `hop` than this base's: both ends must have the same")
        }
        (Refusal::OtherVersion { theirs, ours }, _) => format!(
            "split-tcp of version {theirs} is spoken at {from} and {ours} here: update the older end"
        ),
        (Refusal::Full, _) => format!(
            "{from} is turned away: there are as many associations as `[limits] associations` says"
        ),
    };
    let more = match (again, others) {
        (0, 0) => String::new(),
        (again, 0) => format!(" ({again} more times since this was last said)"),
        (_, others) => format!(" ({others} more times from elsewhere)"),
    };
    what + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_caller_and_what_to_change() {
        let (own, other) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        let said = |caller, why, again, others| {
            let from = "192.0.2.7:5000".to_owned();
            refused(caller, &Refused { from, why, again, others }, Some(&own))
        };
        let key = said(Caller::Mobile, Refusal::OtherBase, 0, 0);
        assert!(key.contains("192.0.2.7:5000") && key.contains("`base_key`"), "{key}");
        assert!(key.ends_with(&format!("is not {own}")), "{key}");
        let stranger = said(Caller::Mobile, Refusal::Stranger(other), 12, 0);
        assert!(
            stranger.contains(&other.to_string()) && stranger.contains("`allow`"),
            "{stranger}"
        );
        assert!(stranger.ends_with("(12 more times since this was last said)"), "{stranger}");
        let peer = said(Caller::Base, Refusal::Stranger(other), 0, 5);
        assert!(peer.contains("[[peers]]") && peer.ends_with("(5 more times from elsewhere)"));
        let unconfirmed = said(Caller::Base, Refusal::Unconfirmed(other), 0, 0);
        assert!(unconfirmed.contains("[[peers]]"), "{unconfirmed}");
        for (why, setting) in [
            (Refusal::Unconfirmed(other), "`psk`"),
            (Refusal::OtherSeal, "`seal`"),
            (Refusal::OtherTransport, "`hop`"),
            (Refusal::OtherVersion { theirs: 9, ours: 2 }, "version 9"),
            (Refusal::Full, "associations"),
        ] {
            let line = said(Caller::Mobile, why, 0, 0);
            assert!(line.contains(setting) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn silence_the_networks_answer_and_what_does_not_open_are_distinguished() {
        let own = PublicKey::from_bytes([1; 32]);
        let mobile = Some(Introduction { caller: Caller::Mobile, own });
        let base = Some(Introduction { caller: Caller::Base, own });
        let said = |heard, introduction| {
            let line = unanswered(heard, "192.0.2.1:4433", introduction);
            assert!(line.contains("192.0.2.1:4433") && !line.contains('\n'), "{line}");
            line
        };
        let silence = said(HandshakeFailure::Nothing, mobile);
        for word in ["runs there", "firewall", "log", "`allow`", "`base_key`"] {
            assert!(silence.contains(word), "{silence}");
        }
        assert!(silence.contains(&own.to_string()));
        assert!(said(HandshakeFailure::Nothing, base).contains("[[peers]]"));
        assert!(!said(HandshakeFailure::Nothing, None).contains("key"));
        for (introduction, word) in [(mobile, "`allow`"), (base, "[[peers]]")] {
            let line = said(HandshakeFailure::Unopened, introduction);
            for word in ["does not open", "compare the pre-shared keys", "`psk`", word] {
                assert!(line.contains(word), "{line}");
            }
        }
        assert!(said(HandshakeFailure::Strange, mobile).contains("does not open"));
        assert!(said(HandshakeFailure::Goodbye, mobile).contains("`allow`"));
        for (what, word) in [
            (Unreachable::Port, "the port is right"),
            (Unreachable::Prohibited, "firewall"),
            (Unreachable::Host, "check the address"),
            (Unreachable::Network, "check the address"),
            (Unreachable::NextHop, "router"),
            (Unreachable::NoRoute, "on a network"),
        ] {
            let line = said(HandshakeFailure::Network(what), mobile);
            assert!(line.contains(word), "{line}");
        }
    }
}
