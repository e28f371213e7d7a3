//! The mobile's moves: who moves, when, and from cell to cell.

use super::super::file::HandoffFile;
use super::super::model::{End, Handoff, Link, LinkIndex, Node, NodeIndex};
use super::super::problem::suggest;
use super::{Builder, or_zero};

const MOST_CELLS: usize = 1000;
const MOST_HANDOFFS: u32 = 1_000_000;

impl Builder<'_> {
    /// The cells of a handoff, as far as they exist.
    pub(super) fn cells(&mut self, file: &HandoffFile, links: &[Link]) -> Option<Vec<LinkIndex>> {
        let index = |name: &String| links.iter().position(|l| l.name == *name).map(LinkIndex);
        file.cells.iter().map(index).collect()
    }

    /// `None` if something is wrong, `Some(None)` if the file describes a pause of no length.
    pub(super) fn handoff(
        &mut self,
        file: &HandoffFile,
        end: Option<End>,
        nodes: &[Node],
        links: Option<&[Link]>,
    ) -> Option<Option<Handoff>> {
        let mobile = self.mover(file, nodes);
        let links = links?;
        self.known_cells(file, mobile, links);
        let count = file.count.unwrap_or(1);
        let every = or_zero(file.every);
        if count > 1 && file.every.is_none() {
            let message = format!("`every` is missing, and `count` is {count}");
            self.wrong.add(&["handoff"], message, "write `every = \"8s\"`, from start to start");
        }
        let pause_spread = file.pause_spread.map_or(0.0, |s| s.0);
        let start_spread = or_zero(file.start_spread);
        let longest = file.pause.0.mul_f64(1.0 + pause_spread).saturating_add(start_spread);
        if pause_spread >= 1.0 {
            let message = format!("{pause_spread} would leave nothing of a pause");
            self.wrong.add(&["handoff", "pause-spread"], message, "give less than 100%");
        }
        if count > 1 && file.every.is_some() && every < longest {
            let message = format!("{every:?} is shorter than the pause of {longest:?}");
            self.wrong.add(&["handoff", "every"], message, "it counts from start to start");
        }
        if count > MOST_HANDOFFS {
            let message = format!("{count} is more than {MOST_HANDOFFS}");
            self.wrong.add(&["handoff", "count"], message, "");
        }
        if let Some(end) = end
            && file.first.0 >= end.latest()
            && !file.pause.0.is_zero()
        {
            let message =
                format!("{:?} is not before the run's end, {:?}", file.first.0, end.latest());
            self.wrong.add(&["handoff", "first"], message, "begin earlier, or run longer");
        }
        let cells = self.cells(file, links)?;
        if file.pause.0.is_zero() || count == 0 {
            return Some(None);
        }
        Some(Some(Handoff {
            mobile: mobile?,
            cells,
            first: file.first.0,
            pause: file.pause.0,
            pause_spread,
            every,
            start_spread,
            count,
            registration: or_zero(file.registration),
            mode: file.mode,
        }))
    }

    fn mover(&mut self, file: &HandoffFile, nodes: &[Node]) -> Option<NodeIndex> {
        let path = ["handoff", "mobile"];
        let Some(name) = &file.mobile else {
            let mut mobiles = nodes.iter().enumerate().filter(|(_, n)| n.kind.is_mobile());
            return match (mobiles.next(), mobiles.next()) {
                (Some((index, _)), None) => Some(NodeIndex(index)),
                _ => {
                    let remedy = "name the mobile host or mobile router that moves";
                    self.wrong.add(&["handoff"], "`mobile` is missing", remedy);
                    None
                }
            };
        };
        let index = self.node_at(&path, name, nodes)?;
        if !nodes[index.0].kind.is_mobile() {
            let remedy = "nodes of kind `mobile-host` and `mobile-router` do";
            self.wrong.add(&path, format!("`{name}` does not move"), remedy);
        }
        Some(index)
    }

    fn known_cells(&mut self, file: &HandoffFile, mobile: Option<NodeIndex>, links: &[Link]) {
        let path = ["handoff", "cells"];
        if file.cells.is_empty() || file.cells.len() > MOST_CELLS {
            let message = format!("names {} links, expected 1 to {MOST_CELLS}", file.cells.len());
            self.wrong.add(&path, message, "name the links that serve the mobile, in their order");
        }
        for name in &file.cells {
            match links.iter().find(|l| l.name == *name) {
                None => {
                    let known = links.iter().map(|l| l.name.as_str());
                    let message = format!("there is no link `{name}`");
                    self.wrong.add(&path, message, suggest(name, known));
                }
                Some(link) if mobile.is_some_and(|m| !link.ends.contains(&m)) => {
                    let message = format!("link `{name}` does not end at the mobile");
                    self.wrong.add(&path, message, "a cell is a link from the mobile to a base");
                }
                Some(_) => {}
            }
        }
    }
}
