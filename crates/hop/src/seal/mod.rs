//! The seal: who is at the other end of a hop, and nobody else reads or forges what passes.
//!
//! A mobile knows its base's public key and a base its mobiles'. The handshake is
//! `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s`, one message each way, run by the `snow` crate; it yields
//! [`Keys`], which seal every data datagram with ChaCha20-Poly1305 or AES-256-GCM by the `ring`
//! crate. `docs/seal.md` has the threat model and every byte.
//!
//! The mobile makes an [`Initiator`], sends its [`datagram`](Initiator::datagram) again and again
//! until a reply [`finish`](Initiator::finish)es it. The base has one [`Responder`], which
//! [`check`](Responder::check)s (one hash), [`read`](Responder::read)s (two Diffie-Hellmans) and
//! then, if the caller knows the mobile's key, [`accept`](Request::accept)s (two more).
//!
//! Both ends may share a [`PresharedKey`] too, which goes into the reply and so into the keys; without one it is
//! zeros.
//!
//! # A replayed init disturbs nothing
//!
//! An init can be recorded and sent again by anybody, and the responder cannot tell: it keeps no
//! memory of inits. So what [`Request::accept`] returns is only a *candidate*. The caller must
//! keep the mobile's current association exactly as it is, its address included, until a data
//! datagram opens under the candidate's keys. To seal one takes the initiator's ephemeral secret,
//! which whoever replays does not have, and the responder's ephemeral key is fresh in every reply,
//! so that recorded data of an old association does not open either. With that one rule a replay
//! costs the base four Diffie-Hellmans and a candidate's memory, and nothing else. Two more keep
//! the cost small:
//!
//! - An init repeated while its candidate is alive (a lost reply, or a replay) has the same
//!   [`Fingerprint`]: send the same reply again and calculate nothing.
//! - Candidates are few and short-lived, and one whose [`Hello::stamp`] is greater is not displaced
//!   by one whose stamp is less, so that old inits cannot push a genuine one out.
//!
//! # Nonces
//!
//! The nonce is the 64-bit packet number. [`SealingKey`] remembers the last number and refuses one
//! that does not grow, so a nonce cannot be used twice under one key whatever its caller does.
//! Each direction of each path of each handshake has its own
//! key, and a new one follows from it every 2^23 packets, with no bits on the wire.

mod aead;
mod cookie;
mod fingerprint;
mod grant;
mod handshake;
mod keys;
mod noise;
mod path_secrets;
mod ticket;
mod window;

pub use aead::{Cipher, Forged, OpeningKey, SealError, SealingKey};
pub use cookie::Cookie;
pub use fingerprint::Fingerprint;
pub use grant::GrantKey;
pub use handshake::{Established, HandshakeError, Initiator, Keys, Request, Responder};
pub use keys::{Allowed, KeyError, Keypair, PresharedKey, PublicKey, SecretKey};
pub use lasthop_wire::datagram::{Hello, Limits};
pub use lasthop_wire::mhp::handoff::Grant;
pub use path_secrets::PathSecrets;
pub use ticket::TicketKey;
pub use window::ReplayWindow;

#[cfg(test)]
mod tests;
