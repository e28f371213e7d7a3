use super::*;
use crate::reproduce::testing::as_xml;

fn part(title: &str) -> Report {
    let section =
        |title: &str| Section::new(title, vec![Block::Paragraph(format!("<{title}> & so"))]);
    Report {
        title: title.to_owned(),
        subtitle: "about".to_owned(),
        summary: "in short".to_owned(),
        sections: vec![section("Result"), section("Set-up")],
    }
}

#[test]
fn a_book_is_one_document_with_its_parts_in_order() {
    let titles = ["The league", "A paper", "Another paper"];
    let book = Book {
        title: "All of it".to_owned(),
        subtitle: "a league and papers".to_owned(),
        parts: titles.map(part).to_vec(),
    };
    let html = book.to_html();
    assert_eq!(html, book.to_html());
    assert_eq!(html.matches("<!DOCTYPE").count(), 1);
    assert!(!html.contains("http") && !html.contains("<script") && !html.contains("url("));
    let xml = as_xml(&html);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let all = |tag: &'static str| document.descendants().filter(move |n| n.has_tag_name(tag));
    assert_eq!((all("html").count(), all("style").count()), (1, 1));
    let first = all("article").map(|part| {
        part.descendants().find(|n| n.has_tag_name("h1")).and_then(|n| n.text()).unwrap()
    });
    assert_eq!(first.collect::<Vec<_>>(), titles);
    let ids: Vec<&str> = document.descendants().filter_map(|n| n.attribute("id")).collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "each anchor is there once: {ids:?}");
    let links: Vec<&str> =
        all("a").filter_map(|n| n.attribute("href")?.strip_prefix('#')).collect();
    assert_eq!(links.len(), titles.len() * 3);
    assert!(links.iter().all(|link| ids.contains(link)), "{links:?} among {ids:?}");
}
