//! What the usual runs of each paper and of the league counted: their folders record it, and what
//! people read says the same. `tools/agreement` writes both.

use std::fs;

use super::testing::request;
use super::{Criterion, find, league, print};

/// What is recorded, with a cell of each that does not take long.
const RECORDED: [(&str, &str); 5] = [
    ("mhp-srp-1994", "table3/0s/0%"),
    ("mobile-tcp-2001", "figure15/PER0%/mobile-tcp"),
    ("rwc-atcp-2003", "example"),
    ("obtcp-2010", "table6/0.1/obtcp"),
    ("ll-trigger-2017", "table2/0s/ll-freeze"),
];

fn read(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The criteria among the lines that `lasthop reproduce ID --json` printed.
pub(crate) fn recorded(id: &str) -> Vec<Criterion> {
    let text = read(&format!("papers/{id}/criteria.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(criteria: &[Criterion]) -> Vec<&str> {
    criteria.iter().map(|c| c.name.as_str()).collect()
}

#[test]
fn the_readme_tells_of_each_paper_and_the_league_what_agrees_and_what_does_not() {
    let readme = read("README.md");
    for id in RECORDED.into_iter().map(|(id, _)| id).chain([league::ID]) {
        let command = format!("`lasthop reproduce {id}` |");
        let row = readme.lines().find(|line| line.starts_with('|') && line.contains(&command));
        let verdict = print::short_verdict(&recorded(id));
        assert!(row.is_some_and(|row| row.contains(&verdict)), "{id}: the row lacks\n{verdict}");
    }
}

#[test]
fn the_book_tells_the_same_with_the_names_of_what_agrees() {
    let page = read("docs/reproduced.md");
    for (id, _) in RECORDED {
        let section =
            page.split("\n## ").find(|s| s.contains(&format!("`lasthop reproduce {id}`")));
        let verdict = print::verdict(&recorded(id));
        assert!(section.is_some_and(|s| s.contains(&verdict)), "{id}: the page lacks\n{verdict}");
    }
    assert!(read("docs/league.md").contains(&print::verdict(&recorded(league::ID))));
}

/// One run of a cell that does not take long tells what is counted.
#[test]
fn what_is_recorded_is_what_is_counted() {
    for (id, only) in RECORDED {
        let study = find(id).unwrap().study;
        let reproduction = (study.reproduce)(&request(&[only], 1), &()).unwrap();
        assert_eq!(names(&reproduction.criteria), names(&recorded(id)), "{id}");
    }
    let league = league::reproduce(&request(&["goodput/reno/clean/none"], 1), &()).unwrap();
    assert_eq!(names(&league.criteria), names(&recorded(league::ID)));
}
