use std::process::Command as Program;

use super::*;

fn written(what: fn(PathBuf) -> What) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { what: what(folder.path().join("made")) };
    run(&options, crate::whole()).unwrap();
    folder
}

fn manual_pages() -> (tempfile::TempDir, Vec<(String, String)>) {
    let folder = written(|dir| What::Man { dir });
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let mut pages: Vec<_> = fs::read_dir(folder.path().join("made")).unwrap().map(read).collect();
    pages.sort();
    (folder, pages)
}

/// Whether `program` is content with the file; said where it is missing.
fn accepts(program: &str, args: &[&str], file: &Path) -> Option<String> {
    match Program::new(program).args(args).arg(file).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "{program}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(e) => {
            lasthop_testing::skip(format_args!("{program}: {e}"));
            None
        }
    }
}

#[test]
fn every_subcommand_has_its_page() {
    fn names(command: &Command, name: &str, found: &mut Vec<String>) {
        found.push(name.to_owned());
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            names(sub, &format!("{name}-{}", sub.get_name()), found);
        }
    }
    let mut expected = Vec::new();
    names(&crate::whole(), "lasthop", &mut expected);
    expected.sort();
    let (_folder, pages) = manual_pages();
    let there: Vec<String> = pages.into_iter().map(|(name, _)| name).collect();
    assert_eq!(there, expected);
    assert!(there.iter().any(|name| name == "lasthop-link-imminent"), "{there:?}");
    assert!(!there.iter().any(|name| name.contains("generate")), "{there:?}");
}

#[test]
fn a_page_has_its_sections() {
    let (_folder, pages) = manual_pages();
    for (name, text) in &pages {
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
            assert!(text.contains(&format!(".SH {section}")), "{name} has no {section}\n{text}");
        }
    }
    let base = &pages.iter().find(|(name, _)| name == "lasthop-base").unwrap().1;
    for part in
        [".SH FILES", ".SH EXAMPLES", ".SH \"SEE ALSO\"", "lasthop base", "max\\-connections"]
    {
        assert!(base.contains(part), "{part} is not in\n{base}");
    }
}

#[test]
fn what_pages_refer_to_exists() {
    let (_folder, pages) = manual_pages();
    let there = |wanted: &str| pages.iter().any(|(name, _)| name == wanted);
    for (named, page) in pages::read().unwrap() {
        assert!(there(&named), "there is no subcommand for the page {named}");
        for also in page.see_also {
            assert!(also.contains('(') || there(&also), "{named} refers to {also}");
        }
    }
}

#[test]
fn manual_pages_are_what_a_formatter_expects() {
    let (folder, pages) = manual_pages();
    for (name, _) in &pages {
        let file = folder.path().join("made").join(format!("{name}.1"));
        let said = accepts("mandoc", &["-T", "lint", "-W", "warning"], &file);
        let worth = |line: &&str| !line.is_empty();
        let complaints: Vec<String> =
            said.iter().flat_map(|said| said.lines()).filter(worth).map(str::to_owned).collect();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    }
}

#[test]
fn completions_are_what_each_shell_reads() {
    let folder = written(|dir| What::Completions { dir });
    let made = folder.path().join("made");
    for (shell, file) in [("bash", "lasthop.bash"), ("zsh", "_lasthop"), ("fish", "lasthop.fish")] {
        let file = made.join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("keygen") && text.contains("max-connections"), "{text}");
        assert!(!text.contains("generate"), "{shell} offers what is hidden");
        assert_eq!(accepts(shell, &["-n"], &file), None);
    }
}

#[test]
fn a_day_is_known_by_its_number() {
    for (days, date) in [
        (0, "1970-01-01"),
        (59, "1970-03-01"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (19_782, "2024-02-29"),
        (47_540, "2100-02-28"),
        (47_541, "2100-03-01"),
    ] {
        assert_eq!(day(days), date);
    }
    // What has no date here (`date -u -d`) cannot be wrong by it: a second source for many days.
    let Ok(output) = Program::new("date").args(["-u", "-d", "@1795737600", "+%F"]).output() else {
        return;
    };
    assert_eq!(day(1_795_737_600 / 86_400), String::from_utf8_lossy(&output.stdout).trim());
}
