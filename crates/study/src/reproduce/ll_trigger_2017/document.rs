//! The report: what was published and what we get.

use super::content::Content;
use super::figures;
use crate::report::Report;
use crate::reproduce::ReproduceError;
use crate::reproduce::page::{self, inconsistencies, said, setup};

pub(super) fn report(content: &Content<'_>) -> Result<Report, ReproduceError> {
    let (prose, published) = (content.prose, content.published);
    let marks = vec![page::marks(prose, content.comparison)];
    let sections = vec![
        page::result(prose, content.criteria, marks, content.request, super::ID),
        figures::timeouts(content),
        figures::rates(content),
        figures::throughput(content),
        figures::characteristics(content),
        prose.section("explained").noted(),
        setup(prose, published),
        said(prose, published),
        inconsistencies(prose, published),
        prose.section("method").noted(),
    ];
    page::report(prose, published, &[], sections)
}
