//! `fleet.toml`: which fleet, and how its etcd is reached.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::FleetError;
use crate::files;
use crate::records::{Name, OwnBase};
use crate::store::Access;
use crate::token::Secret;

/// The name of the file.
pub const FLEET: &str = "fleet.toml";
/// Where it is when nobody says.
pub const FOLDER: &str = "/etc/lasthop";

/// The contents of `fleet.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetFile {
    /// The fleet's name.
    pub name: Name,
    /// Where etcd is.
    pub endpoints: Vec<String>,
    /// The file with the certificates of who may speak for etcd, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    /// The file with this machine's own certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// The file with that certificate's secret key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Who this is in etcd, where that has users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file with that user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The base on this machine, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<OwnBase>,
}

impl FleetFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is not understood: the error names the line.
    pub fn load(path: &Path) -> Result<Self, FleetError> {
        Ok(lasthop_control::config::load(path)?)
    }

    /// Writes it to `path`, for its owner alone.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn store(&self, path: &Path) -> Result<(), FleetError> {
        let text =
            toml::to_string(self).map_err(|e| FleetError::write(path, io::Error::other(e)))?;
        files::write(
            path,
            &format!("# Which fleet this machine is of, and where its etcd is.\n{text}"),
        )
    }

    /// How etcd is reached, with what is in the files that are named.
    ///
    /// # Errors
    ///
    /// One of them cannot be read, or a certificate and its key are not given together.
    pub fn access(&self) -> Result<Access, FleetError> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, Secret::from(read(key)?))),
            (None, None) => None,
            _ => return Err(FleetError::Settings("a certificate and its key belong together")),
        };
        let user = match (&self.user, &self.password_file) {
            (Some(user), Some(file)) => {
                let text = Zeroizing::new(read(file)?);
                Some((user.clone(), Secret::from(text.trim_end_matches(['\n', '\r']).to_owned())))
            }
            (None, None) => None,
            _ => {
                return Err(FleetError::Settings("a user and his password's file belong together"));
            }
        };
        let ca = self.cacert.as_deref().map(read).transpose()?;
        Ok(Access { endpoints: self.endpoints.clone(), ca, identity, user })
    }

    /// The base on this machine.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn own_base(&self) -> Result<&OwnBase, FleetError> {
        self.base.as_ref().ok_or(FleetError::NoBase)
    }
}

fn read(path: &Path) -> Result<String, FleetError> {
    fs::read_to_string(path).map_err(|source| FleetError::Read { path: path.to_owned(), source })
}
