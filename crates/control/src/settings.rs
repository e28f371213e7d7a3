//! Settings, each of which stands once: a row of a table says what a file calls it, its flag, its
//! type, its default, its range and what people read of it. From the table follow how a file is
//! read, how flags win over it, `--help` and the pages of the documentation.

use clap::builder::StyledStr;
use serde::Serialize;

/// Makes a struct of settings from its rows:
///
/// ```ignore
/// settings! {
///     /// The `[limits]` table.
///     #[derive(clap::Args)]
///     pub struct LimitsFile {
///         /// Connections at once.
///         ///
///         /// What only the documentation says.
///         #[flag(long = "max-connections", value_name = "COUNT")]
///         #[range(", from 1 to 65535")]
///         pub connections: Option<usize> = 4096,
///     }
/// }
/// ```
///
/// The struct is read by serde and refuses keys that it does not have. With `entry` before it all,
/// it is one of several tables, of which some keys must be said. What has a default has a
/// method of the field's name that gives the value. A default that depends on more stands behind
/// `=>`, as the documentation says it, alone or behind the value that it is shown in place of. In a
/// struct of flags a row without one says `#[arg(skip)]`, and one that is a table of flags itself
/// `#[command(flatten)]`. What is only a flag says `#[key(skip)]`,
/// and what a function of its own reads `#[key(read = FUNCTION)]`.
#[macro_export]
macro_rules! settings {
    ($(#[$($meta:tt)*])* $visible:vis struct $name:ident { $($rows:tt)* }) => {
        $crate::settings! {
            @table
            $(#[$($meta)*])*
            #[derive(Default)]
            $visible struct $name { $($rows)* }
        }
        $crate::settings!(@lay $name $($rows)*);
        $crate::settings!(@read $name $($rows)*);
    };
    (entry $(#[$($meta:tt)*])* $visible:vis struct $name:ident { $($rows:tt)* }) => {
        $crate::settings! {
            @table
            $(#[$($meta)*])*
            #[derive(serde::Deserialize)]
            #[serde(deny_unknown_fields)]
            $visible struct $name { $($rows)* }
        }
    };
    (@read $name:ident $(
        $(#[doc = $doc:literal])*
        $(#[flag($($flag:tt)*)])?
        $(#[arg($($arg:tt)*)])?
        $(#[command($($command:tt)*)])?
        $(#[range($range:expr)])?
        $(#[key($($key:tt)*)])?
        $visible:vis $field:ident: $type:ty $(= $default:expr)? $(=> $shown:expr)?,
    )*) => {
        $crate::keyed!($name, true, $([$($($key)*)?] $field: $type,)*);
    };
    (@lay $name:ident $(
        $(#[$($attribute:tt)*])*
        $visible:vis $field:ident: $type:ty $(= $default:expr)? $(=> $shown:expr)?,
    )*) => {
        impl $crate::settings::Setting for $name {
            fn lay(&mut self, over: Self) {
                $($crate::settings::Setting::lay(&mut self.$field, over.$field);)*
            }

            fn differences(&self, other: &Self, name: &str, out: &mut Vec<String>) {
                let one = self;
                $($crate::settings!(@differ one other name out $field $($default)?);)*
            }
        }
    };
    (@differ $one:ident $other:ident $name:ident $out:ident $field:ident) => {
        $crate::settings::Setting::differences(
            &$one.$field,
            &$other.$field,
            &$crate::settings::within($name, stringify!($field)),
            $out,
        )
    };
    (@differ $one:ident $other:ident $name:ident $out:ident $field:ident $default:expr) => {
        // What is said and is the default is no other value.
        $crate::settings::Setting::differences(
            &Some($one.$field()),
            &Some($other.$field()),
            &$crate::settings::within($name, stringify!($field)),
            $out,
        )
    };
    (
        @table
        $(#[$($meta:tt)*])*
        $visible:vis struct $name:ident {$(
            $(#[doc = $doc:literal])*
            $(#[flag($($flag:tt)*)])?
            $(#[arg($($arg:tt)*)])?
            $(#[command($($command:tt)*)])?
            $(#[range($range:expr)])?
            $(#[key($($key:tt)*)])?
            $(#[serde($($serde:tt)*)])?
            $also_visible:vis $field:ident: $type:ty $(= $default:expr)? $(=> $shown:expr)?,
        )*}
    ) => {
        #[derive(Clone, PartialEq, Debug)]
        $(#[$($meta)*])*
        $visible struct $name {$(
            $(#[doc = $doc])*
            $(#[arg(
                id = concat!(stringify!($name), ".", stringify!($field)),
                $($flag)*,
                help = $crate::settings::help::<Self>(stringify!($field)),
                long_help = None::<&'static str>,
            )])?
            $(#[arg($($arg)*)])?
            $(#[command($($command)*)])?
            $(#[serde($($serde)*)])?
            $also_visible $field: $type,
        )*}

        impl $name {$($(
            #[doc = concat!("`", stringify!($field), "`, or its default.")]
            $visible fn $field(&self) -> <$type as IntoIterator>::Item {
                $crate::settings::or(&self.$field, $default)
            }
        )?)*}

        impl $crate::settings::Table for $name {
            const ROWS: &'static [$crate::settings::Row] = &[$($crate::settings::Row {
                name: stringify!($field),
                is_key: $crate::settings!(@is_key $($($key)*)?),
                flag: $crate::settings!(@flag $($($flag)*)?),
                kind: stringify!($type),
                doc: &[$($doc),*],
                range: || String::new() $(+ &ToString::to_string(&$range))?,
                default: || None::<String>
                    $(.or_else(|| Some(String::from($shown))))?
                    $(.or_else(|| Some($crate::settings::shown(&$default))))?,
            }),*];
        }
    };
    (@flag long = $long:literal $($rest:tt)*) => { concat!("--", $long) };
    (@flag value_name = $name:literal $($rest:tt)*) => { $name };
    (@flag) => { "" };
    (@is_key skip) => { false };
    (@is_key $($rest:tt)*) => { true };
}

/// What is known of a setting beside its type.
#[derive(Debug)]
pub struct Row {
    /// The field's name, by which files call it.
    pub name: &'static str,
    /// Its flag, or the name of the argument that it is; empty if it has none.
    pub flag: &'static str,
    #[doc(hidden)]
    pub is_key: bool,
    #[doc(hidden)]
    pub kind: &'static str,
    #[doc(hidden)]
    pub doc: &'static [&'static str],
    #[doc(hidden)]
    pub range: fn() -> String,
    #[doc(hidden)]
    pub default: fn() -> Option<String>,
}

impl Row {
    /// What is said of it, its range behind the first sentence: the first paragraph and the others,
    /// without their last full stops.
    fn paragraphs(&self) -> (String, String) {
        let text = |lines: &[&str]| {
            let words: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
            words.join(" ").trim().trim_end_matches('.').to_owned()
        };
        let at = self.doc.iter().position(|line| line.trim().is_empty()).unwrap_or(self.doc.len());
        let (first, rest) = self.doc.split_at(at);
        let mut first = text(first);
        first.insert_str(first.find(". ").unwrap_or(first.len()), &(self.range)());
        (first, text(rest))
    }

    /// The row of the documentation's table, in Markdown.
    pub fn markdown(&self, flags: bool) -> String {
        let code = |text: &str| match text {
            "" => String::new(),
            text => format!("`{text}`"),
        };
        let (first, rest) = self.paragraphs();
        let what = if rest.is_empty() { first } else { format!("{first}. {rest}") };
        let default = (self.default)().unwrap_or_default();
        let key = if self.is_key { self.name } else { "" };
        let cells = [code(key), code(self.flag), default, what];
        let shown = cells.iter().enumerate().filter(|(n, _)| flags || *n != 1);
        shown.fold("|".to_owned(), |line, (_, cell)| match cell.as_str() {
            "" => line + " |",
            cell => format!("{line} {cell} |"),
        })
    }
}

/// A struct of [`settings!`].
pub trait Table {
    /// Its settings.
    const ROWS: &'static [Row];
}

/// A field of a table, or a table.
pub trait Setting {
    /// Lays what flags say over what a file says: a value takes the place of another, a list that
    /// cannot be absent grows.
    fn lay(&mut self, over: Self);

    /// Adds to `out` what is another value in `other`: `name`, which is this setting's, or the names in
    /// this table, as `name.key`.
    fn differences(&self, other: &Self, name: &str, out: &mut Vec<String>);
}

impl<T: PartialEq> Setting for Option<T> {
    fn lay(&mut self, over: Self) {
        if over.is_some() {
            *self = over;
        }
    }

    fn differences(&self, other: &Self, name: &str, out: &mut Vec<String>) {
        out.extend((self != other).then(|| name.to_owned()));
    }
}

impl<T: PartialEq> Setting for Vec<T> {
    fn lay(&mut self, over: Self) {
        self.extend(over);
    }

    fn differences(&self, other: &Self, name: &str, out: &mut Vec<String>) {
        out.extend((self != other).then(|| name.to_owned()));
    }
}

#[doc(hidden)]
pub fn within(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

#[doc(hidden)]
pub fn or<T: Clone>(said: &Option<T>, default: T) -> T {
    said.clone().unwrap_or(default)
}

/// A value as a file says it, which JSON and TOML write alike.
pub fn shown(value: &impl Serialize) -> String {
    format!("`{}`", serde_json::to_string(value).unwrap_or_default())
}

/// What `--help` says of a setting: its first paragraph, with range and default.
pub fn help<T: Table>(name: &str) -> StyledStr {
    let Some(row) = T::ROWS.iter().find(|row| row.name == name) else { return StyledStr::new() };
    let many = row.kind.trim_start_matches("Option<").starts_with("Vec<");
    let many = if many { "; may be given several times" } else { "" };
    let default = (row.default)().map(|default| format!(" [default: {default}]"));
    plain(&format!("{}{many}{}", row.paragraphs().0, default.unwrap_or_default())).into()
}

/// A text without Markdown and without the quotes of a file's values.
fn plain(markdown: &str) -> String {
    let mut text = markdown.replace("`[\"", "").replace("\"]`", "").replace("`\"", "");
    text = text.replace("\"`", "").replace('`', "");
    // A link is its words.
    while let Some((from, to)) = text.find("](").and_then(|to| Some((text[..to].rfind('[')?, to))) {
        let Some(end) = text[to..].find(')') else { break };
        text = format!("{}{}{}", &text[..from], &text[from + 1..to], &text[to + end + 1..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use lasthop_units::Span;

    use super::*;

    settings! {
        /// A table.
        struct Example {
            /// How long. It is [long](x.md#y).
            ///
            /// Some `more`.
            #[range(", 9s at most")]
            time: Option<Span> = Span(std::time::Duration::from_millis(1500)),
            /// Names.
            names: Vec<String> => "`[\"all\"]`",
            /// Not of files.
            #[key(skip)]
            only: Option<u8>,
        }
    }

    #[test]
    fn help_and_page_follow_from_the_rows() {
        let help = |name| help::<Example>(name).to_string();
        assert_eq!(help("time"), "How long, 9s at most. It is long [default: 1500ms]");
        assert_eq!(help("names"), "Names; may be given several times [default: all]");
        let rows: Vec<String> = Example::ROWS.iter().map(|row| row.markdown(false)).collect();
        let long = "How long, 9s at most. It is [long](x.md#y). Some `more`";
        assert_eq!(rows[0], format!("| `time` | `\"1500ms\"` | {long} |"));
        assert_eq!(rows[2], "| | | Not of files |");
    }

    settings! {
        /// A table with another.
        struct Outer {
            /// The other.
            inner: Example,
            /// A number.
            n: Option<u8> = 3,
        }
    }

    #[test]
    fn what_differs_is_named_by_table_and_key_and_a_default_that_is_said_does_not() {
        let read = |text| toml::from_str::<Outer>(text).unwrap();
        let differ = |one, other| {
            let mut out = Vec::new();
            read(one).differences(&read(other), "", &mut out);
            out
        };
        assert!(differ("", "n = 3\n[inner]\ntime = \"1500ms\"").is_empty());
        assert_eq!(differ("n = 4", ""), ["n"]);
        let text = "[inner]\ntime = \"2s\"\nnames = [\"b\"]";
        assert_eq!(differ("", text), ["inner.time", "inner.names"]);
        assert_eq!(differ(text, "[inner]\ntime = \"2s\""), ["inner.names"]);
    }

    #[test]
    fn flags_win_over_a_file_and_lists_grow() {
        let read = |text| toml::from_str::<Example>(text).unwrap();
        let mut file = read("time = \"1s\"\nnames = [\"a\"]");
        assert_eq!(Example::default().time().to_string(), "1500ms");
        file.lay(read("names = [\"b\"]"));
        assert_eq!(file, read("time = \"1s\"\nnames = [\"a\", \"b\"]"));
        file.lay(read("time = \"2s\""));
        assert_eq!(file.time().to_string(), "2s");
        assert!(toml::from_str::<Example>("only = 1").is_err());
    }
}
