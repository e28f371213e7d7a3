use lasthop_sim::measure;
use lasthop_units::Rate;

use super::DomainError;

/// Equation (21), ω: how fairly flows share, from 1/n for one that has all to 1 for equal shares.
///
/// The paper defines its terms as fractions of the bottleneck and tabulates kB/s (INC-S4); the unit
/// cancels.
///
/// # Errors
/// If no flow receives anything.
pub fn fairness(shares: &[Rate]) -> Result<f64, DomainError> {
    measure::fairness(shares).ok_or(DomainError::NoFlow)
}

/// Equation (22), ψ: the part of the bottleneck's rate that flows receive, in per cent.
///
/// The paper's tables count payload against the link's whole rate, so that headers keep ψ below 100:
/// 1000 of 1040 bytes are 96.15 %.
///
/// # Errors
/// If there is no flow, or the bottleneck has no rate or no limit.
pub fn utilisation(shares: &[Rate], bottleneck: Rate) -> Result<f64, DomainError> {
    if shares.is_empty() {
        return Err(DomainError::NoFlow);
    }
    measure::utilisation_percent(shares, bottleneck).ok_or(DomainError::NoRate)
}
