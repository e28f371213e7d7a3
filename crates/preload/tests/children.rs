//! Programs that are not helped, started by others that are.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Outcome, run};

/// A folder with a program that says "ran" and needs no library, and one that is a usual one.
struct Tools {
    folder: tempfile::TempDir,
}

impl Tools {
    /// None where nothing can be compiled.
    fn new() -> Option<Self> {
        let tools = Self { folder: tempfile::tempdir().unwrap() };
        let source = tools.at("ran.c");
        fs::write(&source, "#include <stdio.h>\nint main(void) { return puts(\"ran\") < 0; }\n")
            .unwrap();
        for (name, more) in [("static", &["-static"][..]), ("dynamic", &[])] {
            let done = Command::new("cc")
                .args(more)
                .arg("-o")
                .args([tools.at(name), source.clone()])
                .status();
            if !done.is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: no C compiler, or no static C library");
                return None;
            }
        }
        Some(tools)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self) -> String {
        format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap())
    }

    fn run(&self, command: &[&str]) -> Option<Outcome> {
        run(
            nobody(),
            command,
            &[("PATH", &self.path()), ("TOOLS", self.folder.path().to_str().unwrap())],
        )
    }

    /// Runs `command`, which must run the static program, and counts what is said of it.
    fn warnings(&self, command: &[&str]) -> Option<usize> {
        let Outcome { stdout, stderr, success } = self.run(command)?;
        assert!(success && stdout.contains("ran"), "{command:?}: {stdout}{stderr}");
        let warning = warning(&self.at("static"));
        for line in stderr.lines() {
            assert_eq!(line, warning, "{command:?}");
        }
        Some(stderr.lines().count())
    }
}

/// Nothing here connects.
fn nobody() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

fn warning(program: &Path) -> String {
    let program = program.display();
    format!(
        "lasthop exec: warning: {program} is statically linked; its connections will not go through the mobile"
    )
}

#[test]
fn a_static_child_of_a_shell_of_git_and_of_make_is_told_of() {
    let Some(tools) = Tools::new() else { return };
    let at = tools.at("static");
    let at = at.to_str().unwrap();
    fs::write(tools.at("Makefile"), "all:\n\tstatic\n\t@true; static\n").unwrap();
    let folder = tools.folder.path().to_str().unwrap();
    let commands: [(&[&str], usize); 9] = [
        (&["sh", "-c", "static; true"], 1),
        (&["bash", "-c", "static; true"], 1),
        (&["sh", "-c", "exec static"], 1),
        (&["sh", "-c", "dynamic | static"], 1),
        (&["bash", "-c", "for _ in 1 2; do static; done"], 2),
        (&["env", "static"], 1),
        (&["sh", "-c", "echo | xargs static"], 1),
        (&["git", "-c", &format!("alias.try=!{at}"), "try"], 1),
        (&["make", "-s", "-C", folder], 2),
    ];
    for (command, expected) in commands {
        if let Some(found) = tools.warnings(command) {
            assert_eq!(found, expected, "{command:?}");
        }
    }
}

#[test]
fn every_way_to_start_a_program_is_watched() {
    let Some(tools) = Tools::new() else { return };
    // What Python has no function for is called in the C library.
    let script = r#"
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
path = os.environ["TOOLS"] + "/static"
def strings(some): return (ctypes.c_char_p * (len(some) + 1))(*some, None)
def environment(): return strings([os.fsencode(k + "=" + v) for k, v in os.environ.items()])
def spawn(function, name):
    assert function(None, name, None, None, strings([b"static"]), environment()) == 0
    os.wait()
def forked(start):
    if os.fork() == 0:
        start()
        os._exit(1)
    assert os.wait()[1] == 0
name, argv = os.fsencode(path), strings([b"static"])
fd = os.open(path, os.O_RDONLY)
ways = {
    "execve": lambda: forked(lambda: os.execve(path, ["static"], os.environ)),
    "execv": lambda: forked(lambda: os.execv(path, ["static"])),
    "execvp": lambda: forked(lambda: libc.execvp(b"static", argv)),
    "execvpe": lambda: forked(lambda: libc.execvpe(b"static", argv, environment())),
    "execveat": lambda: forked(lambda: libc.execveat(-100, name, argv, environment(), 0)),
    "posix_spawn": lambda: spawn(libc.posix_spawn, name),
    "posix_spawnp": lambda: spawn(libc.posix_spawnp, b"static"),
    "subprocess": lambda: subprocess.run([path], check=True),
    "shell": lambda: subprocess.run("static; true", shell=True, check=True),
    "system": lambda: os.system("static; true"),
}
ways[sys.argv[1]]()
"#;
    for way in [
        "execve",
        "execv",
        "execvp",
        "execvpe",
        "execveat",
        "posix_spawn",
        "posix_spawnp",
        "subprocess",
        "shell",
        "system",
    ] {
        let Some(found) = tools.warnings(&["python3", "-c", script, way]) else { return };
        assert_eq!(found, 1, "{way}");
    }
    let open = "import os; fd = os.open(os.environ['TOOLS'] + '/static', os.O_RDONLY); \
                os.execve(fd, ['static'], os.environ)";
    let outcome = tools.run(&["python3", "-c", open]).unwrap();
    assert_eq!(outcome.stdout, "ran\n");
    assert!(outcome.stderr.contains("a program is statically linked"), "{}", outcome.stderr);
}

#[test]
fn a_process_tells_of_a_program_once_and_of_each() {
    let Some(tools) = Tools::new() else { return };
    let script = r#"
import os
path = os.environ["TOOLS"] + "/static"
os.link(path, path + "-too")
for name in [path, path, path + "-too", path, path + "-too"]:
    os.waitpid(os.posix_spawn(name, ["static"], os.environ), 0)
"#;
    let Some(outcome) = tools.run(&["python3", "-c", script]) else { return };
    assert_eq!(outcome.stdout, "ran\n".repeat(5));
    let [first, second] = ["static", "static-too"].map(|name| warning(&tools.at(name)));
    assert_eq!(outcome.stderr.lines().collect::<Vec<_>>(), [first, second]);
}

#[test]
fn a_program_that_is_started_without_the_library_is_told_of() {
    let Some(tools) = Tools::new() else { return };
    let dynamic = tools.at("dynamic");
    let Some(outcome) = tools.run(&["env", "-i", dynamic.to_str().unwrap()]) else { return };
    assert_eq!(outcome.stdout, "ran\n");
    assert!(outcome.stderr.contains("dynamic is started without LD_PRELOAD"), "{}", outcome.stderr);
}

#[test]
fn a_helped_child_is_not_told_of_and_one_that_does_not_exist_is_the_shells_to_name() {
    let Some(tools) = Tools::new() else { return };
    let script = "dynamic; dynamic | cat; no-such-program 2>/dev/null; true";
    for shell in ["sh", "bash"] {
        let Some(outcome) = tools.run(&[shell, "-c", script]) else { continue };
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("ran\nran\n", ""));
    }
    fs::set_permissions(tools.at("static"), fs::Permissions::from_mode(0o644)).unwrap();
    let outcome = tools.run(&["sh", "-c", "static 2>/dev/null; true"]).unwrap();
    assert_eq!(outcome.stderr, "");
}

#[test]
fn what_is_said_goes_where_the_childs_errors_go_and_into_no_connection() {
    let Some(tools) = Tools::new() else { return };
    let log = tools.at("log");
    let script = format!("static 2>{}; true", log.display());
    let Some(outcome) = tools.run(&["sh", "-c", &script]) else { return };
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("ran\n", ""));
    let said = fs::read_to_string(log).unwrap();
    assert_eq!(said.trim_end(), warning(&tools.at("static")));
    let script = r#"
import os, socket
a, b = socket.socketpair()
os.dup2(b.fileno(), 2)
os.waitpid(os.posix_spawn(os.environ["TOOLS"] + "/static", ["static"], os.environ), 0)
a.setblocking(False)
try: print(a.recv(100))
except BlockingIOError: print("nothing")
"#;
    let Some(outcome) = tools.run(&["python3", "-c", script]) else { return };
    assert_eq!(outcome.stdout, "ran\nnothing\n");
}
