//! Datagrams that another base passes on: a mobile that reaches the base of its association by no direct way sends what is
//! for it to a base that it does reach, behind a header that says whose it is. What comes back is passed on as it is.

use super::{DatagramError, Kind, MAC_LEN, be32, field};

/// Length of the header before a datagram that is to be passed on.
pub const TRANSIT_HEADER_LEN: usize = field::RECEIVER.end;

/// The header before a datagram that is to be passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transit {
    /// The path of the association that the datagram inside belongs to.
    pub path: u8,
    /// The mobile's association with the base that passes it on, by the number that this base chose first.
    pub receiver: u32,
}

impl Transit {
    /// Its bytes.
    pub fn to_bytes(self) -> [u8; TRANSIT_HEADER_LEN] {
        let mut out = [0; TRANSIT_HEADER_LEN];
        out[field::VERSION_KIND] = Kind::Transit.first_byte();
        out[field::PATH] = self.path;
        out[field::RECEIVER].copy_from_slice(&self.receiver.to_be_bytes());
        out
    }

    /// Reads one, and the datagram behind it.
    ///
    /// # Errors
    ///
    /// Another version or kind, or too short.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), DatagramError> {
        Kind::Transit.expect(datagram, TRANSIT_HEADER_LEN + 1, usize::MAX)?;
        let (header, inner) = datagram.split_at(TRANSIT_HEADER_LEN);
        Ok((Self { path: header[field::PATH], receiver: be32(header, field::RECEIVER) }, inner))
    }
}

/// A base that is to pass datagrams on asks whether their sender receives where it sends from, and the sender's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransitCheck {
    /// The answer, and not the question.
    pub proof: bool,
    /// The path of the datagram that led to it.
    pub path: u8,
    /// The association, as in [`Transit`].
    pub receiver: u32,
    /// The cookie for the sender's address, or its hash under the token that the base has given the mobile.
    pub mac: [u8; MAC_LEN],
}

impl TransitCheck {
    /// Its length.
    pub const LEN: usize = field::RECEIVER.end + MAC_LEN;

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let kind = if self.proof { Kind::TransitProof } else { Kind::TransitChallenge };
        let mut out = [0; Self::LEN];
        out[field::VERSION_KIND] = kind.first_byte();
        out[field::PATH] = self.path;
        out[field::RECEIVER].copy_from_slice(&self.receiver.to_be_bytes());
        out[field::RECEIVER.end..].copy_from_slice(&self.mac);
        out
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        let proof = Kind::of(datagram)? == Kind::TransitProof;
        let kind = if proof { Kind::TransitProof } else { Kind::TransitChallenge };
        kind.expect(datagram, Self::LEN, Self::LEN)?;
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&datagram[field::RECEIVER.end..]);
        let (path, receiver) = (datagram[field::PATH], be32(datagram, field::RECEIVER));
        Ok(Self { proof, path, receiver, mac })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_lies_behind_its_header() {
        let header = Transit { path: 3, receiver: 0x0102_0304 };
        let mut datagram = header.to_bytes().to_vec();
        assert!(Transit::parse(&datagram).is_err(), "nothing is passed on");
        datagram.extend(b"inside");
        assert_eq!(Transit::parse(&datagram), Ok((header, &b"inside"[..])));
        for n in 0..datagram.len() {
            let _ = Transit::parse(&datagram[..n]);
        }
        datagram[0] = Kind::Data.first_byte();
        assert_eq!(Transit::parse(&datagram), Err(DatagramError::Kind(0)));
    }

    #[test]
    fn question_and_answer_are_told_apart() {
        for proof in [false, true] {
            let check = TransitCheck { proof, path: 1, receiver: 7, mac: [9; MAC_LEN] };
            let bytes = check.to_bytes();
            assert_eq!(TransitCheck::parse(&bytes), Ok(check));
            for n in 0..bytes.len() {
                assert!(TransitCheck::parse(&bytes[..n]).is_err());
            }
            assert!(TransitCheck::parse(&[&bytes[..], b"x"].concat()).is_err());
        }
        assert!(TransitCheck::parse(&[Kind::Transit.first_byte(); TransitCheck::LEN]).is_err());
    }
}
