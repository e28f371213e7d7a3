//! `lasthop exec`: a program whose TCP connections go through the mobile, without privilege.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use rustix::fs::CWD;

/// The library that is put before the C library.
const LIBRARY: &str = "liblasthop_preload.so";

/// Most networks that the library has room for.
const MAX_NETWORKS: usize = 32;

/// As env(1) and the shells have it: the command was not found, or could not be run.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;

/// Runs a program with its `connect` interposed. Its TCP connections go through the mobile's SOCKS5
/// listener; Unix sockets, UDP, loopback and link-local addresses are left alone.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The SOCKS5 listener of `lasthop mobile`. IPv4, which sockets of both families can reach
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1080")]
    proxy: SocketAddrV4,

    /// A network to connect to directly; may be given several times
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = network)]
    direct: Vec<String>,

    /// How long a connection may take to open [default: 127, or 20 where the program's socket is
    /// non-blocking]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,

    /// The library to interpose, instead of the one installed with this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Becomes the program; only a failure returns.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let Some((name, arguments)) = options.command.split_first() else {
        bail!("no command given");
    };
    if options.direct.len() > MAX_NETWORKS {
        bail!("--direct can be given {MAX_NETWORKS} times at most");
    }
    let library = find_library(options.library.as_deref())?;
    warn_of(name);

    let mut command = Command::new(name);
    command
        .args(arguments)
        .env("LD_PRELOAD", preload_list(&library, env::var_os("LD_PRELOAD"))?)
        .env("LASTHOP_PROXY", options.proxy.to_string());
    set_or_clear(&mut command, "LASTHOP_DIRECT", &options.direct.join(","));
    let timeout = options.timeout.map(|seconds| seconds.to_string());
    set_or_clear(&mut command, "LASTHOP_TIMEOUT", timeout.as_deref().unwrap_or_default());

    let error = command.exec();
    eprintln!("lasthop exec: {}: {error}", name.display());
    let missing = error.kind() == ErrorKind::NotFound;
    std::process::exit(if missing { NOT_FOUND } else { NOT_RUN });
}

/// Says so if the program will not be helped. Those that it starts are looked at by the library.
fn warn_of(name: &OsStr) {
    let Ok(name) = CString::new(name.as_bytes()) else { return };
    let path = env::var_os("PATH");
    let mut room = lasthop_loader::Room::default();
    let file = lasthop_loader::find(&name, path.as_deref().map(OsStr::as_bytes), &mut room);
    if let Some(doubt) = file.and_then(|file| lasthop_loader::doubt(CWD, file, true)) {
        eprintln!("lasthop exec: warning: {doubt}; its connections will not go through the mobile");
    }
}

/// An outer `lasthop exec` may have set what this one was not told.
fn set_or_clear(command: &mut Command, variable: &str, value: &str) {
    if value.is_empty() {
        command.env_remove(variable);
    } else {
        command.env(variable, value);
    }
}

/// The library's absolute path: the program may change its directory.
fn find_library(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("--library {}", path.display()));
    }
    let own = env::current_exe().context("cannot tell where this command is installed")?;
    let places = places(&own);
    for place in &places {
        if let Ok(path) = place.canonicalize() {
            return Ok(path);
        }
    }
    let looked: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
    bail!("{LIBRARY} is not installed: looked for {}; --library names another", looked.join(", "))
}

/// Beside the command, as a build leaves it, and under `lib`, as an installation does.
fn places(own: &Path) -> Vec<PathBuf> {
    let Some(directory) = own.parent() else { return Vec::new() };
    vec![directory.join(LIBRARY), directory.join("../lib/lasthop").join(LIBRARY)]
}

/// `LD_PRELOAD` with `library` first. The loader takes spaces and colons as separators and knows no
/// quoting (ld.so(8)).
fn preload_list(library: &Path, others: Option<OsString>) -> anyhow::Result<OsString> {
    let path = library.as_os_str();
    if path.as_encoded_bytes().iter().any(|b| matches!(b, b':' | b' ')) {
        bail!(
            "{}: the dynamic loader takes no library with a colon or a space in its path",
            library.display()
        );
    }
    let mut list = path.to_os_string();
    if let Some(others) = others.filter(|o| !o.is_empty() && o.as_os_str() != path) {
        list.push(OsStr::new(":"));
        list.push(others);
    }
    Ok(list)
}

/// Checks a network and hands it on as it is: the library reads it.
fn network(text: &str) -> Result<String, String> {
    let (address, bits) = text.split_once('/').ok_or("expected ADDRESS/BITS, as 10.0.0.0/8")?;
    let address: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= width => Ok(text.to_owned()),
        _ => Err(format!("expected 0 to {width} bits, not {bits}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_stay_behind_ours() {
        let ours = Path::new("/l/ours.so");
        let list = |others: &str| preload_list(ours, Some(others.into())).unwrap();
        assert_eq!(preload_list(ours, None).unwrap(), "/l/ours.so");
        assert_eq!(list(""), "/l/ours.so");
        assert_eq!(list("a.so b.so"), "/l/ours.so:a.so b.so");
    }

    #[test]
    fn a_nested_exec_does_not_name_the_library_twice() {
        let ours = Path::new("/l/ours.so");
        assert_eq!(preload_list(ours, Some("/l/ours.so".into())).unwrap(), "/l/ours.so");
    }

    #[test]
    fn a_path_that_the_loader_would_cut_is_refused() {
        let error = preload_list(Path::new("/with space/ours.so"), None).unwrap_err();
        assert!(error.to_string().contains("/with space/ours.so"));
    }

    #[test]
    fn a_missing_library_says_where_it_was_looked_for() {
        let looked = places(Path::new("/opt/bin/lasthop"));
        assert_eq!(looked[0], Path::new("/opt/bin/liblasthop_preload.so"));
        assert_eq!(looked[1], Path::new("/opt/bin/../lib/lasthop/liblasthop_preload.so"));
        let error = find_library(Some(Path::new("/no/such.so"))).unwrap_err();
        assert!(error.to_string().contains("/no/such.so"));
    }

    #[test]
    fn a_network_is_checked_before_the_program_runs() {
        assert!(network("10.0.0.0/8").is_ok() && network("2001:db8::/128").is_ok());
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "::/-1"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
