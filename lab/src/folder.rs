//! A folder for what processes of the lab read: keys, configuration files, sockets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::LabError;

/// How folders of the lab are called, before the process's number.
const PREFIX: &str = "lasthop-lab-";

/// A folder for the owner alone, which is removed with everything in it.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    /// A new one. Those of processes that were killed are removed first.
    pub(crate) fn new() -> Result<Self, LabError> {
        sweep(&std::env::temp_dir());
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        folder.map(Self).map_err(|e| LabError::io("making a folder", e))
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, LabError> {
        let path = self.path(name);
        fs::write(&path, text)
            .map_err(|e| LabError::io(format!("writing {}", path.display()), e))?;
        Ok(path)
    }
}

/// Removes folders whose process is gone.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|n| n.strip_prefix(PREFIX)) else { continue };
        let gone = rest
            .split('-')
            .next()
            .and_then(|pid| pid.parse::<u32>().ok())
            .is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if gone {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
