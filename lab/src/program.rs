use std::env;
use std::path::PathBuf;

/// The `lasthop` command to test: what `LASTHOP` names, or else the one that was built beside the
/// running program (`cargo build -p lasthop`, same profile).
pub fn lasthop_program() -> Option<PathBuf> {
    if let Some(named) = env::var_os("LASTHOP") {
        return Some(named.into());
    }
    let running = env::current_exe().ok()?;
    // Tests run from `deps` or `examples` below the folder that commands are built into.
    let folders = running.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("lasthop")).find(|path| path.is_file())
}
