//! Key pairs for processes of the lab.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use lasthop_daemon::keyfile;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::error::LabError;

/// A new key pair whose secret is in a file without a name, which no crash can leave behind.
#[derive(Debug)]
pub(crate) struct Key {
    secret: File,
    /// The public half as text.
    pub(crate) public: String,
}

impl Key {
    pub(crate) fn generate() -> Result<Self, LabError> {
        let make = || {
            let keys = keyfile::generate()?;
            let mut secret = File::from(memfd_create("lasthop-key", MemfdFlags::CLOEXEC)?);
            secret.set_permissions(Permissions::from_mode(0o600))?;
            secret.write_all(keys.secret().to_text().as_bytes())?;
            Ok(Self { secret, public: keys.public().to_string() })
        };
        make().map_err(|e| LabError::io("making a key", e))
    }

    /// Where children find the secret while this is held.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.secret.as_raw_fd())
    }
}
