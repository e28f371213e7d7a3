//! The README's commands, as they stand there.

use std::fs;
use std::os::unix::fs::symlink;

use lasthop_kernel::netns::Netns;
use lasthop_lab::process::Daemon;

use crate::stage::{Stage, repository, text, until};

/// What becomes of a command line.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// The tests' own build stands for it.
    Built,
    /// Makes a key, and prints the public half that stands for this word from then on.
    Keygen(&'static str),
    /// Goes on at the base; what it says when it serves.
    Base(&'static str),
    /// Goes on at the mobile.
    Mobile(&'static str),
    /// Ends by itself at the mobile; a part of what it prints.
    Prints(&'static str),
    /// Ends by itself at the mobile, with nothing to say.
    Silent,
    /// Ends by itself at the mobile and leaves this file.
    Leaves(&'static str),
    /// Shows this on a terminal.
    Shows(&'static str),
    /// Goes on at a bridge between two hosts.
    Bridge(&'static str),
    /// Ends by itself in the repository.
    Studies(&'static str),
}

/// The command lines of two sections, in their order. What comes into the README comes in here, too.
const USE_IT: [(&str, Act); 12] = [
    ("cargo build --release -p lasthop -p lasthop-preload", Act::Built),
    ("export PATH=$PWD/target/release:$PATH", Act::Built),
    ("lasthop keygen --out base.key", Act::Keygen("BASE_PUBLIC_KEY")),
    ("lasthop keygen --out mobile.key", Act::Keygen("MOBILE_PUBLIC_KEY")),
    ("lasthop base --key base.key --allow MOBILE_PUBLIC_KEY", Act::Base("serving")),
    (
        "lasthop mobile --key mobile.key --base base.example.net:4433 --base-key BASE_PUBLIC_KEY",
        Act::Mobile("serving SOCKS5"),
    ),
    ("curl --proxy socks5h://127.0.0.1:1080 http://example.org/", Act::Prints("there")),
    ("lasthop exec -- git clone http://example.org/project.git", Act::Leaves("project/file")),
    ("lasthop status", Act::Prints("10.0.2.1:4433  up")),
    ("lasthop priority set curl 3", Act::Silent),
    ("lasthop top", Act::Shows("10.0.2.1:4433")),
    (
        "lasthop agent snoop --fixed-if eth0 --mobile-if wlan0 --bridge br0",
        Act::Bridge("in the path"),
    ),
];
const FOR_RESEARCHERS: [(&str, Act); 4] = [
    (
        "cargo run --release -p lasthop-study-cli -- sim docs/examples/sim-handoff.toml",
        Act::Studies("srp"),
    ),
    (
        "cargo run --release -p lasthop-study-cli -- reproduce league --report league.html",
        Act::Built,
    ),
    (
        "cargo run --release -p lasthop-study-cli -- reproduce mhp-srp-1994 --report report.html",
        Act::Built,
    ),
    ("make validate", Act::Built),
];

/// The command lines of one of the README's sections, without what is said beside them.
fn commands(section: &str) -> Vec<String> {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, section) = readme.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(|line| line.split(" # ").next().unwrap().trim_end().to_owned()).collect()
}

#[test]
fn the_commands_to_use_it_work_as_they_stand() {
    assert_eq!(commands("Use it"), USE_IT.map(|(line, _)| line));
    let Some(stage) = Stage::new() else { return };
    let _web = stage.web();
    let (base, mobile) = (&stage.lab.base, &stage.lab.mobile);
    let mut keys = Vec::new();
    let mut daemons: Vec<Daemon> = Vec::new();
    for (line, act) in USE_IT {
        let words = keys
            .iter()
            .fold(line.to_owned(), |line, (word, key): &(&str, String)| line.replace(word, key));
        match act {
            Act::Built | Act::Studies(_) => {}
            Act::Keygen(word) => keys.push((word, text(stage.run(mobile, &words).as_bytes()))),
            Act::Base(ready) => daemons.push(stage.serve(base, &words, ready)),
            Act::Mobile(ready) => daemons.push(stage.serve(mobile, &words, ready)),
            Act::Prints(part) => {
                let said = stage.run(mobile, &words);
                assert!(said.contains(part), "`{line}` printed:\n{said}");
            }
            Act::Silent => assert_eq!(stage.run(mobile, &words), "", "`{line}`"),
            Act::Leaves(file) => {
                stage.run(mobile, &words);
                assert!(stage.path(file).exists(), "{file}");
            }
            Act::Shows(part) => shows(&stage, mobile, &words, part),
            Act::Bridge(ready) => bridged(&stage, &words, ready),
        }
    }
    daemons.iter_mut().for_each(|daemon| daemon.check().unwrap());
    assert!(daemons.iter_mut().rev().all(Daemon::stop));
}

/// A program in a terminal, which tmux plays.
fn shows(stage: &Stage, host: &Netns, line: &str, part: &str) {
    let terminal = Terminal { stage, host };
    terminal.tmux(&format!("-u new-session -d -x 100 -y 30 '{line}'"));
    let mut screen = String::new();
    until(&format!("{part} on the screen of `{line}`"), || {
        screen = terminal.tmux("capture-pane -p");
        screen.contains(part)
    });
}

/// A tmux of one program, until it is dropped.
struct Terminal<'a> {
    stage: &'a Stage,
    host: &'a Netns,
}

impl Terminal<'_> {
    fn tmux(&self, order: &str) -> String {
        let socket = self.stage.path("tmux");
        let line = format!("LC_ALL=C.UTF-8 tmux -S {} -f /dev/null {order}", socket.display());
        text(&self.stage.shell(self.host, &line).output().unwrap().stdout)
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux("kill-server");
    }
}

/// An agent on a bridge, which goes on when the agent ends.
fn bridged(stage: &Stage, line: &str, ready: &str) {
    let [fixed, middle, mobile] = [(); 3].map(|()| Netns::anonymous().unwrap());
    fixed.veth("eth0", &middle, "eth0").unwrap();
    mobile.veth("wlan0", &middle, "wlan0").unwrap();
    middle
        .ip("link add br0 type bridge\nlink set eth0 master br0\nlink set wlan0 master br0\n")
        .unwrap();
    for interface in ["eth0", "wlan0", "br0"] {
        middle.interface_up(interface, &[]).unwrap();
    }
    fixed.interface_up("eth0", &[("10.5.0.1".parse().unwrap(), 24)]).unwrap();
    mobile.interface_up("wlan0", &[("10.5.0.2".parse().unwrap(), 24)]).unwrap();
    let server = "python3 -u -m http.server 80 >&2";
    let _server = stage.serve(&fixed, server, "Serving HTTP");
    let mut agent = stage.serve(&middle, line, ready);
    let fetch = "curl -sS http://10.5.0.1/hosts";
    assert!(stage.run(&mobile, fetch).contains("example.org"));
    agent.check().unwrap();
    assert!(agent.stop());
    assert!(stage.run(&mobile, fetch).contains("example.org"));
}

#[test]
fn the_commands_for_researchers_are_those_that_are_known() {
    assert_eq!(commands("For researchers"), FOR_RESEARCHERS.map(|(line, _)| line));
    let Some(stage) = Stage::new() else { return };
    // What it keeps is kept beside it, and not in the repository.
    symlink(repository().canonicalize().unwrap().join("docs"), stage.path("docs")).unwrap();
    for (line, act) in FOR_RESEARCHERS {
        let Act::Studies(part) = act else { continue };
        let line = line.replace("cargo run --release -p lasthop-study-cli --", "lasthop");
        let said = stage.run(&stage.lab.fixed, &line);
        assert!(said.contains(part), "`{line}` printed:\n{said}");
    }
}

/// A table whose command is gone cannot be checked by anybody.
#[test]
fn the_tests_that_the_books_pages_name_are_there() {
    let pages = fs::read_dir(repository().join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.chain(["README.md", "CONTRIBUTING.md"].map(|name| repository().join(name)));
    let mut missing = Vec::new();
    for page in pages.filter(|page| page.is_file()) {
        let text = fs::read_to_string(&page).unwrap();
        for (package, test) in text.split("cargo test -p lasthop-").skip(1).filter_map(named) {
            let folder = match package {
                "lab" | "bench" | "validate" => repository().join(package),
                _ => repository().join("crates").join(package),
            };
            let there = ["", "/main"].map(|end| folder.join(format!("tests/{test}{end}.rs")));
            if !there.iter().any(|file| file.is_file()) {
                missing.push(format!("{}: {package} has no test {test}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The package and the test of `PACKAGE --test TEST ...`.
fn named(command: &str) -> Option<(&str, &str)> {
    let words = command.split(['`', '\n']).next()?;
    let mut words = words.split_whitespace();
    let package = words.next()?;
    let test = words.skip_while(|word| *word != "--test").nth(1)?;
    Some((package, test))
}
