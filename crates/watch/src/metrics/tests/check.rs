//! A strict reader of the text format of OpenMetrics, as far as counters, gauges and infos go.

use std::collections::{BTreeMap, BTreeSet};

type Labels = Vec<(String, String)>;

/// One line with a value.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// The family that is being read.
#[derive(Default)]
struct Open {
    name: String,
    help: bool,
    kind: String,
    unit: bool,
    suffix: &'static str,
}

/// Reads a whole text: each family's samples, by the name of its series.
pub(super) fn exposition(text: &str) -> Result<BTreeMap<String, Vec<Sample>>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
    let mut open = Open::default();
    let mut names = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut families = BTreeMap::<String, Vec<Sample>>::new();
    for line in body.split_terminator('\n') {
        let wrong = |why: &str| format!("{why}: `{line}`");
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').ok_or_else(|| wrong("a comment"))?;
            let (name, rest) = rest.split_once(' ').ok_or_else(|| wrong("nothing is said"))?;
            if name != open.name {
                let new = is_name(name, true) && names.insert(name.to_owned());
                new.then_some(()).ok_or_else(|| wrong("a family's name is bad or comes again"))?;
                open = Open { name: name.to_owned(), ..Open::default() };
            }
            if families.contains_key(&format!("{name}{}", open.suffix)) && !open.kind.is_empty() {
                return Err(wrong("a family is described after its samples"));
            }
            described(&mut open, what, rest).map_err(wrong)?;
        } else {
            let expected = format!("{}{}", open.name, open.suffix);
            let rest = line.strip_prefix(&expected).ok_or_else(|| wrong("another's sample"))?;
            if open.kind.is_empty() || !open.help {
                return Err(wrong("a family without TYPE or HELP"));
            }
            let (labels, value) = sample(rest).map_err(wrong)?;
            judged(&open.kind, value).map_err(wrong)?;
            let mut sorted = labels.clone();
            sorted.sort();
            if !series.insert((expected.clone(), sorted)) {
                return Err(wrong("a series comes again"));
            }
            families.entry(expected).or_default().push(Sample { labels, value });
        }
    }
    Ok(families)
}

fn described(open: &mut Open, what: &str, rest: &str) -> Result<(), &'static str> {
    match what {
        "HELP" if !open.help => open.help = true,
        "TYPE" if open.kind.is_empty() => {
            open.suffix = match rest {
                "counter" => "_total",
                "gauge" => "",
                "info" => "_info",
                _ => return Err("an unexpected type"),
            };
            rest.clone_into(&mut open.kind);
        }
        "UNIT" if !open.unit => {
            if !open.name.ends_with(&format!("_{rest}")) {
                return Err("the unit is not the end of the name");
            }
            open.unit = true;
        }
        _ => return Err("it is said twice, or is no HELP, TYPE or UNIT"),
    }
    Ok(())
}

/// What follows the name: labels, if there are any, and the value.
fn sample(rest: &str) -> Result<(Labels, f64), &'static str> {
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = value.strip_prefix(' ').ok_or("no space before the value")?;
    if value.contains(' ') || value.is_empty() {
        return Err("more or less than one value");
    }
    let value = value.parse().map_err(|_| "the value is no number")?;
    Ok((labels, value))
}

/// Labels, and what follows them.
fn labels(mut rest: &str) -> Result<(Labels, &str), &'static str> {
    let mut labels = Labels::new();
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(name, false) || labels.iter().any(|(known, _)| known == name) {
            return Err("a label's name is bad or comes again");
        }
        let (value, after) = quoted(after)?;
        labels.push((name.to_owned(), value));
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None => return Ok((labels, after.strip_prefix('}').ok_or("labels do not end")?)),
        };
    }
}

/// A value up to its closing quotation mark, and what follows.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('\\' | '"'))) => c,
                _ => return Err("an unknown escape"),
            }),
            c => value.push(c),
        }
    }
    Err("a value without an end")
}

fn judged(kind: &str, value: f64) -> Result<(), &'static str> {
    match kind {
        "counter" if !value.is_finite() || value < 0.0 => Err("a counter that cannot be"),
        "info" if value != 1.0 => Err("an info is 1"),
        _ => Ok(()),
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(good)
}

#[test]
fn what_breaks_the_format_is_refused() {
    let head = "# HELP a_x A.\n# TYPE a_x counter\n";
    for (bad, why) in [
        ("a_x_total 1\n# EOF\n", "without TYPE"),
        ("# HELP a_x A.\n# TYPE a_x counter\na_x 1\n# EOF\n", "another's"),
        (&format!("{head}a_x_total 1\n"), "# EOF"),
        (&format!("{head}a_x_total -1\n# EOF\n"), "cannot be"),
        (&format!("{head}a_x_total 1\na_x_total 2\n# EOF\n"), "again"),
        (&format!("{head}{head}# EOF\n"), "twice"),
        (&format!("{head}a_x_total{{p=\"a\nb\"}} 1\n# EOF\n"), "without an end"),
        (&format!("{head}a_x_total{{p=\"a\\b\"}} 1\n# EOF\n"), "escape"),
        (&format!("{head}a_x_total{{0=\"a\"}} 1\n# EOF\n"), "label"),
        (&format!("{head}\n# EOF\n"), "another's"),
        ("# HELP a_x A.\n# TYPE a_x gauge\n# UNIT a_x bytes\na_x 1\n# EOF\n", "unit"),
    ] {
        let said = exposition(bad).expect_err(bad);
        assert!(said.contains(why), "{bad}: {said}");
    }
    let good = format!("{head}a_x_total{{p=\"a\\n\\\"\\\\\",q=\"\"}} 1.5\n# EOF\n");
    let read = exposition(&good).unwrap();
    assert_eq!(read["a_x_total"][0].value, 1.5);
    assert_eq!(read["a_x_total"][0].labels[0].1, "a\n\"\\");
}
