//! What goes into the report.

use super::Shown;
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
    pub(super) shown: &'a [(String, Shown)],
}
