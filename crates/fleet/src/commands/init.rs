//! Making a fleet, and tokens for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp};

use super::{Fleet, entropy, is_absent, is_there, new_psk, put, whole};
use crate::config::{FLEET, FleetFile};
use crate::error::FleetError;
use crate::files;
use crate::records::{Name, Place, SettingsRecord, TicketKeys, encode};
use crate::store::{Access, users};
use crate::time::now;
use crate::token::{Secret, Token};

/// Where etcd is, and who we are there.
#[derive(Clone, Default, Debug)]
pub struct Where {
    /// Its members' URLs.
    pub endpoints: Vec<String>,
    /// The certificates of who may speak for it.
    pub cacert: Option<PathBuf>,
    /// Our certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Our user.
    pub user: Option<String>,
    /// The file with his password.
    pub password_file: Option<PathBuf>,
}

/// A fleet that was made.
#[derive(Debug)]
pub struct Initiated {
    /// It.
    pub fleet: Fleet,
    /// Where its `fleet.toml` is.
    pub file: PathBuf,
}

/// Makes a fleet with its first key of tickets, and `fleet.toml` in `folder`.
///
/// # Errors
///
/// There is such a fleet, or such a file; etcd refuses or does not answer.
pub async fn init(name: Name, at: Where, folder: &Path) -> Result<Initiated, FleetError> {
    let path = whole(&folder.join(FLEET))?;
    if path.symlink_metadata().is_ok() {
        return Err(FleetError::Exists(path));
    }
    let whole = |path: Option<PathBuf>| path.as_deref().map(whole).transpose();
    let file = FleetFile {
        name: name.clone(),
        endpoints: at.endpoints,
        cacert: whole(at.cacert)?,
        cert: whole(at.cert)?,
        key: whole(at.key)?,
        user: at.user,
        password_file: whole(at.password_file)?,
        base: None,
    };
    files::make_folder(folder)?;
    let fleet = Fleet::open(file).await?;
    let store = &fleet.store;
    if fleet.file.user.is_some() {
        store.make_role(&name).await?;
    }
    let settings = SettingsRecord { name: name.clone(), created: now() };
    let keys = TicketKeys::first(new_psk()?);
    let txn = Txn::new()
        .when([is_absent(store, &Place::Settings)])
        .and_then([put(store, &Place::Settings, &settings), put(store, &Place::TicketKeys, &keys)]);
    if !store.commit("making the fleet", txn).await? {
        return Err(FleetError::FleetExists(name));
    }
    fleet.file.store(&path)?;
    Ok(Initiated { fleet, file: path })
}

impl Fleet {
    /// Makes a token with which one base can join within `ttl`.
    ///
    /// # Errors
    ///
    /// etcd refuses or does not answer.
    pub async fn token(&self, ttl: Duration) -> Result<Token, FleetError> {
        let seed = entropy()?;
        let id: Name = format!("{:016x}", seed.stream("fleet token").next_u64())
            .parse()
            .map_err(crate::records::RecordError::from)?;
        let FleetFile { name: fleet, endpoints, .. } = &self.file;
        let Access { ca, user, .. } = self.file.access()?;
        let (user, password) = match user {
            Some(_) => {
                self.remove_unused_users().await?;
                let (user, password) =
                    (users::user(fleet, &id), Secret::generate(&seed.child("password")));
                self.store.add_user(fleet, &user, &password).await?;
                (Some(user), Some(password))
            }
            None => (None, None),
        };
        let secret = Secret::generate(&seed.child("secret"));
        let (fleet, endpoints) = (fleet.clone(), endpoints.clone());
        let token = Token { fleet, endpoints, ca, user, password, id, secret };
        let place = Place::Token(token.id.clone());
        let lease = self.store.grant(ttl).await?;
        let under = PutOptions::new().with_lease(lease);
        let key = self.store.key(&place.path());
        let txn = Txn::new()
            .when([is_there(&self.store, &Place::Settings)])
            .and_then([TxnOp::put(key, encode(&token.record()), Some(under))]);
        match self.store.commit("making a token", txn).await? {
            true => Ok(token),
            false => Err(FleetError::NoFleet(token.fleet)),
        }
    }

    /// Removes users of tokens that ran out, and of bases that left.
    async fn remove_unused_users(&self) -> Result<(), FleetError> {
        let records = self.read().await?.records;
        let of_tokens = records.tokens.keys().map(|id| users::user(&self.file.name, id));
        let of_bases = records.bases.values().filter_map(|base| base.user.as_ref());
        let used: Vec<String> =
            of_tokens.chain(of_bases.map(|user| user.as_str().to_owned())).collect();
        for user in self.store.users(&self.file.name).await? {
            if !used.contains(&user) {
                self.store.remove_user(&user).await?;
            }
        }
        Ok(())
    }
}
