//! How people judge a telephone call by its delay and loss: the E-model of ITU-T G.107 (06/2015), with
//! the default values of its Table 2 for whatever is not named here.
//!
//! The codec is G.711 with packet loss concealment (its Appendix I), for which G.113 Appendix I gives
//! Ie = 0 and Bpl = 25.1; without concealment Bpl would be 4.3. Losses are independent: BurstR = 1.
//! The advantage factor, what users forgive for being mobile, is 0.
//!
//! Delay counts by the standard's own formulas for Idd, Idte and Idle. The two lines of Cole and Rosenbluth
//! (2001), which are often used in their place, are within 0.3 of them up to 300 ms and too strict beyond.

use lasthop_units::Duration;

use super::datagram_work::VOICE_EVERY;

/// Ro, the signal-to-noise ratio of section 7.2 (dB), by the default values. Roe, by which talker echo is
/// judged (section 7.4), is the same, since SLR is 8 dB and RLR 2 dB.
const RO: f64 = 94.769;
/// Is, what impairs speech at the same time (section 7.3), by the default values.
const IS: f64 = 1.414;
/// Talker echo loudness rating (dB).
const TELR: f64 = 65.0;
/// Weighted echo path loss (dB).
const WEPL: f64 = 110.0;
/// Ie of G.711.
const IE: f64 = 0.0;
/// Bpl of G.711 with concealment (percent).
const BPL: f64 = 25.1;

/// The transmission rating R, 93.2 at best, for a delay from mouth to ear and a share of packets, from
/// 0 to 1, that were lost or came too late to be played. Both ways have the same delay. Above 90 users
/// are very satisfied, below 60 nearly all are dissatisfied (G.107 Table B.1); it may be negative.
pub fn rating(one_way_delay: Duration, loss: f64) -> f64 {
    RO - IS - delay_impairment(one_way_delay) - effective_equipment_impairment(loss)
}

/// The mean opinion score from 1 to 4.5 for a call with a [`rating`] of so much delay and loss: 4.41 for
/// one without.
pub fn mos(one_way_delay: Duration, loss: f64) -> f64 {
    mos_of_rating(rating(one_way_delay, loss))
}

/// The mean opinion score that goes with a transmission rating (G.107 Annex B). Where the polynomial runs
/// below 1, for ratings under 6.5, it is 1.
pub fn mos_of_rating(r: f64) -> f64 {
    let r = r.clamp(0.0, 100.0);
    let mos = 1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6;
    // What is not a number stays so.
    if mos < 1.0 { 1.0 } else { mos }
}

/// The score of a call of so many packets by the E-model, of which these came so much later than after the
/// `least` delay of the path.
///
/// The listener's buffer waits for as long as is best for this call, as a good one finds out in time (Sun and Ifeachor,
/// IEEE Transactions on Multimedia 8(4), 2006): what comes later is lost. A packet's own length is delay, too.
pub fn call(least: Duration, added: &[Duration], packets: usize) -> f64 {
    let best = (1..=added.len()).filter(|played| {
        // Of equal delays the last one decides.
        added.get(*played) != added.get(*played - 1)
    });
    let score = |played: usize| {
        let delay = least + VOICE_EVERY + added[played - 1];
        mos(delay, 1.0 - played as f64 / packets as f64)
    };
    best.map(score).reduce(f64::max).unwrap_or(f64::NAN)
}

/// Id, section 7.4: talker echo, listener echo, and delay as such. The delay is both Ta, without echo, and
/// T, one way of the echo's path; Tr, the echo's way round, is twice that.
fn delay_impairment(one_way_delay: Duration) -> f64 {
    let t = one_way_delay.as_secs_f64() * 1e3;
    talker_echo_impairment(t) + listener_echo_impairment(2.0 * t) + absolute_delay_impairment(t)
}

/// Idte. The default sidetone, 15 dB, asks for no correction of it. Below 4 ms echo is sidetone too, and the
/// formula gives it up to 0.1 point.
fn talker_echo_impairment(t: f64) -> f64 {
    let terv = TELR - 40.0 * libm::log10((1.0 + t / 10.0) / (1.0 + t / 150.0))
        + 6.0 * libm::exp(-0.3 * t * t);
    let re = 80.0 + 2.5 * (terv - 14.0);
    let half = (RO - re) / 2.0;
    (half + (half * half + 100.0).sqrt() - 1.0) * (1.0 - libm::exp(-t))
}

/// Idle.
fn listener_echo_impairment(tr: f64) -> f64 {
    let rle = 10.5 * (WEPL + 7.0) * libm::pow(tr + 1.0, -0.25);
    let half = (RO - rle) / 2.0;
    half + (half * half + 169.0).sqrt()
}

/// Idd for a delay in ms, with the sensitivity and the least noticed delay of conversations by default: sT = 1, mT = 100 ms.
pub fn absolute_delay_impairment(ta: f64) -> f64 {
    if ta <= 100.0 {
        return 0.0;
    }
    let x = libm::log2(ta / 100.0);
    let bend = |x: f64| libm::pow(1.0 + libm::pow(x, 6.0), 1.0 / 6.0);
    25.0 * (bend(x) - 3.0 * bend(x / 3.0) + 2.0)
}

/// Ie,eff, section 7.5, for a share of packets from 0 to 1.
pub fn effective_equipment_impairment(loss: f64) -> f64 {
    let percent = 100.0 * loss.clamp(0.0, 1.0);
    IE + (95.0 - IE) * percent / (percent + BPL)
}
