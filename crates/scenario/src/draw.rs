//! Values that each run draws anew from its seed: `{ uniform = ["4s", "8s"] }` and
//! `{ choice = ["reno", "cubic"] }`, wherever a scenario has a value.

use lasthop_units::{Seed, Stream};

use super::quantity::{EXPECTED, Quantity, Unit};
use super::tree::{Entry, Node, Span, Table, Value};

/// Where the value of a draw comes from.
pub(crate) enum Source {
    /// A run's seed; each value has a stream of its own, named by its path.
    Seed(Seed),
    /// The corner of this number: the first, the last, then every further choice.
    Corner(usize),
}

/// How many corners show every choice and both ends of every range; zero without any draw.
pub(crate) fn corners(node: &Node) -> usize {
    match &node.value {
        Value::Table(table) => match as_draw(table) {
            Some(("choice", Value::List(list))) => list.len(),
            Some(_) => 2,
            None => table.entries().iter().map(|e| corners(&e.node)).max().unwrap_or(0),
        },
        Value::List(list) => list.iter().map(corners).max().unwrap_or(0),
        _ => 0,
    }
}

/// Replaces each draw by a value from `source`: the paths of all, and what was drawn there.
///
/// # Errors
///
/// Every draw that is not understood, with its place.
pub(crate) fn resolve(node: &mut Node, source: &Source) -> Result<Drawn, Vec<(Span, String)>> {
    let mut found = Found::default();
    walk(node, source, &mut String::new(), &mut found);
    if found.wrong.is_empty() { Ok(found.drawn) } else { Err(found.wrong) }
}

/// Paths of random values, and what was drawn there.
pub(crate) type Drawn = Vec<(String, String)>;

/// What was drawn, and what could not be.
#[derive(Default)]
struct Found {
    drawn: Drawn,
    wrong: Vec<(Span, String)>,
}

fn walk(node: &mut Node, source: &Source, path: &mut String, found: &mut Found) {
    let length = path.len();
    match &mut node.value {
        Value::Table(table) => {
            if let Some((kind, value)) = as_draw(table) {
                match draw(kind, value, source, path, &node.place) {
                    Ok(drawn) => {
                        let path = path.trim_start_matches('.').to_string();
                        found.drawn.push((path, drawn.label()));
                        *node = drawn;
                    }
                    Err(message) => found.wrong.push((node.place.clone(), message)),
                }
                return;
            }
            for entry in table.entries_mut() {
                path.push('.');
                path.push_str(&entry.key);
                walk(&mut entry.node, source, path, found);
                path.truncate(length);
            }
        }
        Value::List(list) => {
            for (i, item) in list.iter_mut().enumerate() {
                path.push('.');
                path.push_str(&i.to_string());
                walk(item, source, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// What a table draws, if it is one that says so and nothing else.
fn as_draw(table: &Table) -> Option<(&str, &Value)> {
    match table.entries() {
        [Entry { key, node, .. }] if key == "uniform" || key == "choice" => {
            Some((key, &node.value))
        }
        _ => None,
    }
}

fn draw(
    kind: &str,
    value: &Value,
    source: &Source,
    path: &str,
    place: &Span,
) -> Result<Node, String> {
    let Value::List(list) = value else {
        return Err(format!("`{kind}` needs a list"));
    };
    // A value that a sweep put in place of another draws from the same stream.
    let mut stream = match source {
        Source::Seed(seed) => Some(seed.child("scenario").stream(path)),
        Source::Corner(_) => None,
    };
    if kind == "choice" {
        return choose(list, source, stream.as_mut());
    }
    let [low, high] = list.as_slice() else {
        return Err(format!(
            "`uniform` has {} values, expected the least and the greatest",
            list.len()
        ));
    };
    let read =
        |node| Quantity::read(node).ok_or_else(|| format!("`{}` is not {EXPECTED}", node.label()));
    let (a, b) = Quantity::alike(read(low)?, read(high)?)
        .ok_or_else(|| format!("`{}` and `{}` are not of one kind", low.label(), high.label()))?;
    if a.number > b.number {
        return Err(format!("the range from `{}` to `{}` is empty", low.label(), high.label()));
    }
    let number = match (source, stream) {
        (_, Some(mut stream)) => between(a, b, &mut stream),
        (Source::Corner(n), None) if n % 2 == 0 => a.number,
        _ => b.number,
    };
    Ok(a.with(number).node(place.clone()))
}

fn choose(list: &[Node], source: &Source, stream: Option<&mut Stream>) -> Result<Node, String> {
    let count = list.len();
    let at = match (source, stream) {
        (_, Some(stream)) => stream.below(count as u64) as usize,
        (Source::Corner(n), None) => n % count.max(1),
        (Source::Seed(_), None) => 0,
    };
    list.get(at).cloned().ok_or_else(|| "`choice` has nothing to choose from".to_string())
}

fn between(a: Quantity, b: Quantity, stream: &mut Stream) -> f64 {
    if a.unit == Unit::Whole {
        let values = (b.number - a.number) as u64 + 1;
        return a.number + stream.below(values) as f64;
    }
    a.number + (b.number - a.number) * stream.uniform()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::parse;

    fn drawn(text: &str, source: &Source) -> Result<String, String> {
        let mut tree = parse(text).expect("TOML");
        let values = resolve(&mut tree, source).map_err(|wrong| wrong[0].1.clone())?;
        assert_eq!(values.len(), text.matches(['{']).count());
        let mut out = String::new();
        tree.canonical(&mut out);
        Ok(out)
    }

    #[test]
    fn a_draw_follows_from_the_seed_and_its_own_path_alone() {
        let text = "first = { uniform = [\"4s\", \"8s\"] }\nkind = { choice = [1, 2, 3] }";
        let run = |n| drawn(text, &Source::Seed(Seed::from_u64(n))).expect("draws");
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let more = format!("{text}\nother = {{ uniform = [0.0, 1.0] }}");
        let more = drawn(&more, &Source::Seed(Seed::from_u64(1))).expect("draws");
        let first = run(1);
        let first = first.split(',').next().expect("first");
        assert!(more.contains(first.trim_start_matches('{')), "{more} lacks {first}");
    }

    #[test]
    fn uniform_values_fill_their_range_and_nothing_else() {
        let (mut low, mut high) = (0, 0);
        for seed in 0..200 {
            let source = Source::Seed(Seed::from_u64(seed));
            let text = drawn("x = { uniform = [4.0, 8.0] }", &source).expect("draws");
            let x: f64 = text[5..text.len() - 1].parse().expect("a number");
            assert!((4.0..8.0).contains(&x));
            low += u32::from(x < 5.0);
            high += u32::from(x > 7.0);
        }
        assert!(low > 25 && high > 25, "{low} below 5 and {high} above 7 of 200");
    }

    #[test]
    fn corners_show_the_ends_and_every_choice() {
        let text = "a = { uniform = [1, 9] }\nb = { choice = [\"x\", \"y\", \"z\"] }";
        assert_eq!(corners(&parse(text).expect("TOML")), 3);
        assert_eq!(drawn(text, &Source::Corner(0)), Ok(r#"{"a":1,"b":"x"}"#.to_string()));
        assert_eq!(drawn(text, &Source::Corner(1)), Ok(r#"{"a":9,"b":"y"}"#.to_string()));
        assert_eq!(drawn(text, &Source::Corner(2)), Ok(r#"{"a":1,"b":"z"}"#.to_string()));
    }

    #[test]
    fn what_cannot_be_drawn_is_told() {
        let error = |text| drawn(text, &Source::Corner(0)).expect_err("drew");
        assert!(error("x = { uniform = [\"8s\", \"4s\"] }").contains("empty"));
        assert!(error("x = { uniform = [\"8s\", 4] }").contains("one kind"));
        assert!(error("x = { uniform = [1, 2, 3] }").contains("3 values"));
        assert!(error("x = { uniform = [\"soon\", \"4s\"] }").contains("`soon` is not"));
        assert!(error("x = { choice = [] }").contains("nothing"));
    }
}
