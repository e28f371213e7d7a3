//! Three hosts as a new user has them: each with a shell, names, and a folder to work in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use lasthop_kernel::netns::Netns;
use lasthop_lab::process::Daemon;
use lasthop_lab::topology::{Lab, Topology};

use crate::common;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The fixed host's addresses.
pub(crate) const SERVER: [&str; 2] = ["10.0.1.2", "fd00:1::2"];

/// Fixed host, base and mobile, with `lasthop` in everybody's `PATH`.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    /// The folder in which the base's and the mobile's operator work.
    pub(crate) home: tempfile::TempDir,
    programs: PathBuf,
}

impl Stage {
    /// None where a test may not have it.
    pub(crate) fn new() -> Option<Self> {
        let programs = common::program()?.parent().unwrap().to_owned();
        let lab = common::lab(&Topology::default())?;
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("run")).unwrap();
        let stage = Self { lab, home, programs };
        let [v4, v6] = SERVER;
        stage.names(&format!("10.0.2.1 base.example.net\n{v4} example.org\n{v6} example.org\n"));
        Some(stage)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// What every host resolves from now on, as `/etc/hosts` has it.
    pub(crate) fn names(&self, hosts: &str) {
        fs::write(self.path("hosts"), format!("127.0.0.1 localhost\n::1 localhost\n{hosts}"))
            .unwrap();
    }

    /// A command line in a shell at `host`, which has names and a `/run` of its own.
    pub(crate) fn shell(&self, host: &Netns, line: &str) -> Command {
        let home = self.home.path();
        let run = home.join("run").join(host.path().file_name().unwrap());
        fs::create_dir_all(&run).unwrap();
        let mut command = host.command("unshare");
        command.args(["--mount", "sh", "-euc", INSIDE, "sh", line]).current_dir(home);
        command.env("HOSTS", home.join("hosts")).env("RUN", run);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.programs.display()));
        for set in ["XDG_RUNTIME_DIR", "LASTHOP_LOG", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(set);
        }
        command
    }

    /// Runs a command line that must succeed; what it printed.
    pub(crate) fn run(&self, host: &Netns, line: &str) -> String {
        let Output { status, stdout, stderr } = self.shell(host, line).output().unwrap();
        let (said, complained) = (text(&stdout), text(&stderr));
        assert!(status.success(), "`{line}`: {status}\n{said}\n{complained}");
        said
    }

    /// Makes a key in `NAME.key`; the public half.
    pub(crate) fn keygen(&self, name: &str) -> String {
        self.run(&self.lab.mobile, &format!("lasthop keygen --out {name}.key"))
    }

    /// Starts a program that goes on. It takes the shell's place, so that it is what ends.
    pub(crate) fn start(&self, host: &Netns, line: &str) -> Daemon {
        Daemon::spawn(self.shell(host, &format!("exec {line}"))).unwrap()
    }

    /// Starts one and waits until it says `ready`.
    pub(crate) fn serve(&self, host: &Netns, line: &str, ready: &str) -> Daemon {
        let mut daemon = self.start(host, line);
        says(&mut daemon, ready);
        daemon
    }

    /// A web server at the fixed host: a page, and a repository to clone.
    pub(crate) fn web(&self) -> Daemon {
        self.web_at("::")
    }

    /// The same at one address.
    pub(crate) fn web_at(&self, address: &str) -> Daemon {
        let fixed = &self.lab.fixed;
        fs::create_dir(self.path("www")).unwrap();
        fs::write(self.path("www/index.html"), "there\n").unwrap();
        self.run(fixed, REPOSITORY);
        let server = format!("python3 -u -m http.server --directory www --bind {address} 80 >&2");
        self.serve(fixed, &server, "Serving HTTP")
    }
}

/// What surrounds each command line.
const INSIDE: &str = "mount --bind \"$HOSTS\" /etc/hosts; mount --bind \"$RUN\" /run; \
                      unset HOSTS RUN; exec sh -c \"$1\"";
const REPOSITORY: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git init --quiet work && cd work && echo content >file && git add file
git -c user.name=A -c user.email=a@example.org commit --quiet --message File
cd .. && git clone --quiet --bare work www/project.git
cd www/project.git && git update-server-info";

/// Waits until a process has said `what`.
pub(crate) fn says(daemon: &mut Daemon, what: &str) {
    until(&format!("`{what}` is said"), || {
        let said = daemon.said().contains(what);
        if !said {
            daemon.check().unwrap();
        }
        said
    });
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    lasthop_testing::wait_until(what, PATIENCE, holds);
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// The repository's own folder.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
