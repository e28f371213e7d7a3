//! Tells the command which commit it is built from: `LASTHOP_COMMIT`.
//!
//! A tree that differs from its commit is named after the difference too, so that results of two
//! different states never look alike. Without git the version must do.

use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

/// What decides over a simulation's results.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    if let Some(log) = git(&root, &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={}", root.join(log.trim()).display());
    }
    let commit = commit(&root).unwrap_or_else(|| format!("{}-unknown", env!("CARGO_PKG_VERSION")));
    println!("cargo::rustc-env=LASTHOP_COMMIT={commit}");
}

fn commit(root: &Path) -> Option<String> {
    let commit = git(root, &["rev-parse", "HEAD"])?.trim().to_string();
    let with_sources = |first: &[&'static str]| [first, &["--"], &SOURCES].concat();
    let changed = git(root, &with_sources(&["status", "--porcelain", "--untracked-files=all"]))?;
    if changed.is_empty() {
        return Some(commit);
    }
    let mut difference = Sha256::new();
    difference.update(git(root, &with_sources(&["diff", "HEAD", "--binary"]))?);
    for new in changed.lines().filter_map(|line| line.strip_prefix("?? ")) {
        difference.update(new);
        difference.update(std::fs::read(root.join(new.trim_matches('"'))).unwrap_or_default());
    }
    let hash: String = difference.finalize()[..4].iter().map(|b| format!("{b:02x}")).collect();
    Some(format!("{commit}-dirty-{hash}"))
}

/// What git says; nothing where there is no git or no repository.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(args)
        .current_dir(root)
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
