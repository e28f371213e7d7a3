//! What goes into the report.

use super::Series;
use super::points::Points;
use crate::analysis::obtcp::checks::Check;
use crate::analysis::obtcp::reference::Reference;
use crate::published::Published;
use crate::reproduce::prose::Prose;
use crate::reproduce::{Comparison, Criterion, Request};

/// What a report is made of.
pub(super) struct Content<'a> {
    pub(super) prose: &'a Prose,
    pub(super) published: &'a Published,
    pub(super) request: &'a Request,
    pub(super) comparison: &'a Comparison,
    pub(super) criteria: &'a [Criterion],
    pub(super) checks: &'a [Check],
    pub(super) reference: &'a Reference,
    pub(super) points: &'a Points,
    pub(super) round_trips: &'a [(String, Series)],
}
