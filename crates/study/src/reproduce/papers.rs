//! The papers whose experiments are reproduced.

use super::study::{ReproduceError, Study};
use super::{ll_trigger_2017, mhp_srp_1994, mobile_tcp_2001, obtcp_2010, rwc_atcp_2003};

/// The papers whose schemes lasthop has.
pub const PAPERS: [Paper; 5] = [
    Paper {
        id: "mhp-srp-1994",
        authors: "Yavatkar, Bhagawat",
        year: 1994,
        title: "Improving End-to-End Performance of TCP over Mobile Internetworks",
        study: mhp_srp_1994::STUDY,
    },
    Paper {
        id: "mobile-tcp-2001",
        authors: "Haas, Warkhedi",
        year: 2001,
        title: "The design and performance of Mobile TCP for wireless networks",
        study: mobile_tcp_2001::STUDY,
    },
    Paper {
        id: "rwc-atcp-2003",
        authors: "Raisinghani, Singh, Iyer",
        year: 2003,
        title: "Improving TCP Performance over Mobile Wireless Environments using Cross Layer Feedback",
        study: rwc_atcp_2003::STUDY,
    },
    Paper {
        id: "obtcp-2010",
        authors: "Sardar, Saha, Hassan",
        year: 2010,
        title: "A New Protocol to improve TCP Performance in Network Mobility",
        study: obtcp_2010::STUDY,
    },
    Paper {
        id: "ll-trigger-2017",
        authors: "Mohammad, Potrus",
        year: 2017,
        title: "A Method for Compensation of TCP Throughput Degrading During Movement of Mobile Node",
        study: ll_trigger_2017::STUDY,
    },
];

/// A published paper.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The name that `lasthop reproduce` takes.
    pub id: &'static str,
    /// Its authors' family names.
    pub authors: &'static str,
    /// When it appeared.
    pub year: u16,
    /// Its title.
    pub title: &'static str,
    /// How its experiments are reproduced.
    pub study: Study,
}

/// The paper called `id`.
///
/// # Errors
/// If there is no such paper; the error lists those that there are.
pub fn find(id: &str) -> Result<&'static Paper, ReproduceError> {
    PAPERS.iter().find(|paper| paper.id == id).ok_or_else(|| {
        let known: Vec<&str> = PAPERS.iter().map(|paper| paper.id).collect();
        ReproduceError::Unknown { id: id.to_owned(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_that_is_not_there_is_refused_with_those_that_are() {
        let refusal = find("mhp-1994").unwrap_err().to_string();
        assert!(refusal.contains("`mhp-1994`") && refusal.contains("mhp-srp-1994"), "{refusal}");
        assert!(refusal.contains("`league` and `all`"), "{refusal}");
        assert_eq!(find("mobile-tcp-2001").unwrap().year, 2001);
    }
}
