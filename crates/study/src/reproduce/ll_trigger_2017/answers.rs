//! Table I's questions, answered by what was measured and by what a scheme is built of.

use lasthop_units::{Scheme, WorksAt};

use super::cells::{
    EARLY, ERRORS, FREQUENT, IDEAL, LONG, ROUTER, SEMANTICS, TABLE_1, TABLE_1_EARLY,
};
use crate::published::Published;
use crate::reproduce::Comparison;

/// The row that is not measured.
pub(super) const NODE: &str = "intermediate node";

/// A scheme copes with a trouble if it wins back at least this part of what unhelped Reno loses on the
/// ideal.
pub(super) const COPES: f64 = 0.5;

/// The rows of Table I, in its order.
pub(super) const QUESTIONS: [&str; 5] = [NODE, SEMANTICS, LONG, FREQUENT, ERRORS];

/// An answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Answer {
    /// The answer.
    pub(super) yes: bool,
    /// What it follows from: bytes that were acknowledged early, or per cent of the ideal.
    pub(super) value: Option<f64>,
    /// The part of what Reno loses that was won back.
    pub(super) won: Option<f64>,
}

/// The answer for a scheme; none where its cells were not run.
pub(super) fn answer(comparison: &Comparison, question: &str, scheme: Scheme) -> Option<Answer> {
    let table = if scheme == Scheme::Obtcp { ROUTER } else { TABLE_1 };
    let value = |table: &str, column: &str, scheme: Scheme| {
        comparison.mean([table, question, column, scheme.name()])
    };
    match question {
        NODE => Some(Answer { yes: changes_tcp_on_the_way(scheme), value: None, won: None }),
        SEMANTICS => {
            let early = value(TABLE_1_EARLY, EARLY, scheme)?;
            Some(Answer { yes: early == 0.0, value: Some(early), won: None })
        }
        _ => {
            let (ours, reno) = (value(table, IDEAL, scheme)?, value(table, IDEAL, Scheme::None)?);
            let won = (ours - reno) / (100.0 - reno);
            let yes = scheme != Scheme::None && won >= COPES;
            Some(Answer { yes, value: Some(ours), won: Some(won) })
        }
    }
}

/// Some node on the way ends TCP connections, or reads and changes their segments: what the paper
/// calls changes to TCP at an intermediate node. A link that recovers by itself is none.
pub(super) fn changes_tcp_on_the_way(scheme: Scheme) -> bool {
    let traits = scheme.traits();
    traits.intermediate_node && (traits.place == WorksAt::Surrogate || traits.reads_headers)
}

/// Whether a scheme works where TCP's headers are encrypted from end to end: a fact of what it is
/// built of.
pub(super) fn works_encrypted(scheme: Scheme) -> bool {
    !scheme.traits().reads_headers
}

/// What the paper has in a cell of Table I; none where it has none.
pub(super) fn printed(published: &Published, question: &str, scheme: Scheme) -> Option<bool> {
    let table = published.table(&format!("table1-{}", scheme.name()))?;
    Some(table.cell(question, "answer")?.alone()? > 0.5)
}

/// Whether each answer that the paper has and we have is the same.
pub(super) fn agreements<'a>(
    published: &'a Published,
    comparison: &'a Comparison,
    question: &'a str,
) -> impl Iterator<Item = bool> + 'a {
    Scheme::ALL.into_iter().filter_map(move |scheme| {
        let theirs = printed(published, question, scheme)?;
        Some(answer(comparison, question, scheme)?.yes == theirs)
    })
}
