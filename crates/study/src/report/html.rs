use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Block, Book, Entry, Figure, Note, Report, Table, Tone, Verdict};
use crate::setup::Parameter;

const STYLE: &str = include_str!("style.css");

pub(super) fn document(report: &Report) -> String {
    page(&report.title, &part(report, ""))
}

pub(super) fn book(book: &Book) -> String {
    let name = |part: usize| format!("part-{}", part + 1);
    let body = html! {
        header {
            h1 { (book.title) }
            p.subtitle { (book.subtitle) }
            nav aria-label="Parts" {
                ol {
                    @for (i, report) in book.parts.iter().enumerate() {
                        li { a href={ "#" (name(i)) } { (report.title) } }
                    }
                }
            }
        }
        @for (i, report) in book.parts.iter().enumerate() {
            article.part id=(name(i)) { (part(report, &format!("{}-", name(i)))) }
        }
    };
    page(&book.title, &body)
}

fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// A report without the page around it. Its anchors begin with `prefix`.
fn part(report: &Report, prefix: &str) -> Markup {
    html! {
        header {
            h1 { (report.title) }
            p.subtitle { (report.subtitle) }
            p.summary { (report.summary) }
            (contents(report, prefix))
        }
        main {
            @for (i, section) in report.sections.iter().enumerate() {
                section id=(anchor(prefix, i)) {
                    h2 { (section.title) }
                    @for block in &section.blocks { (self::block(block)) }
                }
            }
        }
    }
}

fn anchor(prefix: &str, section: usize) -> String {
    format!("{prefix}section-{}", section + 1)
}

fn contents(report: &Report, prefix: &str) -> Markup {
    html! {
        nav aria-label="Contents" {
            ol {
                @for (i, section) in report.sections.iter().enumerate() {
                    li { a href={ "#" (anchor(prefix, i)) } { (section.title) } }
                }
            }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Paragraph(text) => html! { p { (text) } },
        Block::Code(text) => html! { pre { code { (text) } } },
        Block::Verdicts(verdicts) => self::verdicts(verdicts),
        Block::Table(table) => self::table(table),
        Block::Figure(figure) => self::figure(figure),
        Block::Parameters(parameters) => self::parameters(parameters),
        Block::Notes(notes) => self::notes(notes),
    }
}

fn verdicts(verdicts: &[Verdict]) -> Markup {
    html! {
        ul.verdicts {
            @for verdict in verdicts {
                li class=(tone(verdict.tone)) {
                    span.count { (verdict.count) }
                    span.name { (verdict.name) }
                    span.needed { (verdict.needed) }
                }
            }
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div.scroll {
            table {
                caption { (table.caption) }
                thead { tr { @for title in &table.head { th scope="col" { (title) } } } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (i, entry) in row.iter().enumerate() {
                                @if i == 0 {
                                    th scope="row" { (self::entry(entry)) }
                                } @else {
                                    td { (self::entry(entry)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn entry(entry: &Entry) -> Markup {
    html! {
        @match entry.tone {
            Some(t) => { span class={ "mark " (tone(t)) } { (entry.text) } }
            None => { (entry.text) }
        }
        @if !entry.small.is_empty() { " " span.small { (entry.small) } }
    }
}

fn figure(figure: &Figure) -> Markup {
    let mut keys = Vec::new();
    for key in figure.charts.iter().flat_map(|chart| chart.keys()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    html! {
        figure {
            ul.legend { @for key in &keys { li { (key.swatch()) " " (key.name) } } }
            div.charts { @for chart in &figure.charts { (chart.render()) } }
            figcaption { (figure.caption) }
        }
    }
}

fn parameters(parameters: &[Parameter]) -> Markup {
    html! {
        div.scroll {
            table.parameters {
                thead {
                    tr {
                        th scope="col" { "parameter" }
                        th scope="col" { "value" }
                        th scope="col" { "kind" }
                        th scope="col" { "source or reason" }
                    }
                }
                tbody {
                    @for parameter in parameters {
                        tr {
                            th scope="row" { (parameter.name) }
                            td { (parameter.value) }
                            td { span class={ "kind " (parameter.kind.name()) } { (parameter.kind.name()) } }
                            td { (parameter.reason) }
                        }
                    }
                }
            }
        }
    }
}

fn notes(notes: &[Note]) -> Markup {
    html! {
        dl {
            @for note in notes {
                dt { (note.name) }
                dd { (note.text) }
            }
        }
    }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Fair => "fair",
        Tone::Bad => "bad",
        Tone::Neutral => "neutral",
    }
}
