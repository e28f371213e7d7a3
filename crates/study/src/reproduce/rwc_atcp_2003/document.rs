//! The report: what was published and what we get.

use super::content::Content;
use super::figures;
use crate::report::Report;
use crate::reproduce::ReproduceError;
use crate::reproduce::page::{self, inconsistencies, said, setup};

pub(super) fn report(content: &Content<'_>) -> Result<Report, ReproduceError> {
    let (prose, published) = (content.prose, content.published);
    let sections = vec![
        page::result(prose, content.criteria, Vec::new(), content.request, super::ID),
        figures::downloads(content),
        figures::maxima(content),
        figures::transfers(content),
        figures::courses(content),
        prose.section("explained").noted(),
        figures::sensitivity(content),
        setup(prose, published),
        said(prose, published),
        inconsistencies(prose, published),
        prose.section("method").noted(),
    ];
    page::report(prose, published, &[], sections)
}
