//! Keys.

use std::io;
use std::path::PathBuf;

use lasthop_daemon::keyfile;

use crate::error::LabError;
use crate::folder::Folder;

/// A key pair.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// The file with the secret half.
    pub(super) file: PathBuf,
    /// The public half as text.
    pub(super) public: String,
}

impl Key {
    /// A new one, kept in `folder` as `name`.
    pub(super) fn generate(folder: &Folder, name: &str) -> Result<Self, LabError> {
        let keys = keyfile::generate().map_err(|e: io::Error| LabError::io("making a key", e))?;
        let file = folder.write(name, &keys.secret().to_text())?;
        Ok(Self { file, public: keys.public().to_string() })
    }
}
