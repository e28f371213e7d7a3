//! Keys for processes of the lab.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use lasthop_daemon::keyfile;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::error::LabError;

/// A secret in a file without a name, which no crash can leave behind.
#[derive(Debug)]
pub(crate) struct Secret(File);

impl Secret {
    fn new(text: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("lasthop-key", MemfdFlags::CLOEXEC)?);
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        Ok(Self(file))
    }

    /// Settings that name a secret's owner, or the like.
    pub(crate) fn settings(text: &str) -> Result<Self, LabError> {
        Self::new(text).map_err(|e| LabError::io("writing settings", e))
    }

    /// A new pre-shared key.
    pub(crate) fn preshared() -> Result<Self, LabError> {
        let made = keyfile::generate_psk().and_then(|psk| Self::new(psk.to_text().as_str()));
        made.map_err(|e| LabError::io("making a pre-shared key", e))
    }

    /// Where children find it while this is held.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// A new key pair.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) secret: Secret,
    /// The public half as text.
    pub(crate) public: String,
}

impl Key {
    pub(crate) fn generate() -> Result<Self, LabError> {
        let make = || {
            let keys = keyfile::generate()?;
            let secret = Secret::new(keys.secret().to_text().as_str())?;
            Ok(Self { secret, public: keys.public().to_string() })
        };
        make().map_err(|e| LabError::io("making a key", e))
    }
}
