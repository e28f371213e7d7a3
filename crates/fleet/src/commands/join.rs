//! Joining a fleet, and leaving it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use etcd_client::Txn;
use lasthop_daemon::keyfile::{self, Existing};

use super::{Fleet, ROUNDS, delete, is_absent, is_there, none_new, put, taken, unchanged, whole};
use crate::config::{FLEET, FleetFile};
use crate::error::FleetError;
use crate::files;
use crate::members;
use crate::records::{BaseRecord, Key, Name, OwnBase, Place, Printable, Records};
use crate::store::{Access, Store};
use crate::token::Token;

/// The base's secret key, in its folder.
const KEY: &str = "base.key";
/// What a token brings, in the base's folder.
const CA: &str = "etcd-ca.pem";
const PASSWORD: &str = "etcd.password";

/// How a base joins.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// What it was given.
    pub token: Token,
    /// Its name.
    pub name: Name,
    /// Where it listens for bases.
    pub peer: SocketAddr,
    /// Where it serves mobiles.
    pub hop: SocketAddr,
    /// Where the wired network reaches it.
    pub via: Option<IpAddr>,
    /// Its own certificate for etcd, and that one's key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Where its files are.
    pub folder: PathBuf,
}

/// A base that has joined.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its name and key.
    pub base: OwnBase,
    /// Its secret key's file.
    pub key: PathBuf,
    /// The file that its configuration has to name.
    pub members: PathBuf,
    /// Its `fleet.toml`.
    pub file: PathBuf,
    /// The other bases.
    pub peers: usize,
    /// The mobiles.
    pub mobiles: usize,
}

/// Joins a fleet as a base, whose files are in a folder of this machine. `progress` is told what is done.
///
/// # Errors
///
/// The token is spent, the name or the key is another's, etcd does not answer, or files cannot be written.
pub async fn join(
    options: &JoinOptions,
    mut progress: impl FnMut(&str),
) -> Result<Joined, FleetError> {
    let JoinOptions { token, name, peer, hop, via, .. } = options;
    let folder = whole(&options.folder)?;
    files::make_folder(&folder)?;
    let mut file = fleet_file(options, &folder)?;
    let path = folder.join(KEY);
    let keys = if path.symlink_metadata().is_ok() {
        progress(&format!("the base's key is in {}", path.display()));
        keyfile::load(&path)?
    } else {
        let keys = keyfile::generate().map_err(FleetError::Entropy)?;
        keyfile::store(&path, &keys, Existing::Keep)?;
        progress(&format!("made the base's key, {}", path.display()));
        keys
    };
    let base = OwnBase { name: name.clone(), key: Key(*keys.public()) };
    // An operator's own file stays what it is, and gains a base.
    let brought = file.user.is_none() || file.base.is_some();
    let user = token.user.as_ref().filter(|_| brought).map(|user| user.parse::<Printable>());
    let user = user.transpose().map_err(crate::records::RecordError::Contradiction)?;
    let (name, key, peer, hop) = (name.clone(), base.key, *peer, *hop);
    let record = BaseRecord { name, key, peer, hop, via: *via, user };
    record.check()?;

    let store = Store::connect_patiently(&access(&file, token, brought)?, &token.fleet).await?;
    progress("etcd answers");
    let records = register(&store, token, &record).await?;
    progress(&format!("registered as {} of the fleet {}", base.name, token.fleet));

    if brought {
        write_brought(&mut file, token, &folder)?;
    }
    file.base = Some(base.clone());
    let file_path = folder.join(FLEET);
    file.store(&file_path)?;
    let made = members::files(&records, &base, &folder);
    files::write_members(&folder, &made)?;
    let members = folder.join(members::MEMBERS);
    let (peers, mobiles) = (records.bases.len().saturating_sub(1), records.mobiles.len());
    Ok(Joined { base, key: path, members, file: file_path, peers, mobiles })
}

/// What is there already, or what follows from the token.
fn fleet_file(options: &JoinOptions, folder: &Path) -> Result<FleetFile, FleetError> {
    let path = folder.join(FLEET);
    let Token { fleet, endpoints, .. } = &options.token;
    if path.symlink_metadata().is_ok() {
        let file = FleetFile::load(&path)?;
        return if file.name == *fleet { Ok(file) } else { Err(FleetError::Exists(path)) };
    }
    let (cert, key) = match &options.identity {
        Some((cert, key)) => (Some(whole(cert)?), Some(whole(key)?)),
        None => (None, None),
    };
    let (name, endpoints) = (fleet.clone(), endpoints.clone());
    Ok(FleetFile {
        name,
        endpoints,
        cacert: None,
        cert,
        key,
        user: None,
        password_file: None,
        base: None,
    })
}

/// How etcd is reached by what the token brings, which is in no files yet.
fn access(file: &FleetFile, token: &Token, brought: bool) -> Result<Access, FleetError> {
    let mut access = file.access()?;
    if brought {
        access.endpoints.clone_from(&token.endpoints);
        access.ca = access.ca.or_else(|| token.ca.clone());
        access.user = token.user.clone().zip(token.password.clone()).or(access.user);
    }
    Ok(access)
}

/// Writes what the token brings into files, and names them.
fn write_brought(file: &mut FleetFile, token: &Token, folder: &Path) -> Result<(), FleetError> {
    file.endpoints.clone_from(&token.endpoints);
    if let Some(ca) = token.ca.as_ref().filter(|_| file.cacert.is_none()) {
        let path = folder.join(CA);
        files::write(&path, ca)?;
        file.cacert = Some(path);
    }
    if let (Some(user), Some(password)) = (&token.user, &token.password) {
        let path = folder.join(PASSWORD);
        files::write(&path, &format!("{}\n", password.as_str()))?;
        file.user = Some(user.clone());
        file.password_file = Some(path);
    }
    Ok(())
}

/// Uses up the token and registers the base, both or neither.
async fn register(
    store: &Store,
    token: &Token,
    record: &BaseRecord,
) -> Result<Records, FleetError> {
    let (own, ticket) = (Place::Base(record.name.clone()), Place::Token(token.id.clone()));
    for _ in 0..ROUNDS {
        let snapshot = super::read(store, &token.fleet).await?;
        let mut records = snapshot.records;
        taken(&records, &record.name, &record.key)?;
        let there = records.bases.get(&record.name);
        let good = records.tokens.get(&token.id).is_some_and(|known| *known == token.record());
        if !good {
            // The answer to the same request may have been lost.
            return if there == Some(record) { Ok(records) } else { Err(FleetError::TokenSpent) };
        }
        let path = own.path();
        let same_base = match there {
            Some(_) => unchanged(store, &path, snapshot.revision),
            None => is_absent(store, &own),
        };
        let txn = Txn::new()
            .when([
                is_there(store, &ticket),
                same_base,
                is_absent(store, &Place::Revoked(record.key)),
                none_new(store, Place::MOBILES, snapshot.revision),
            ])
            .and_then([delete(store, &ticket), put(store, &own, record)]);
        if store.commit("joining", txn).await? {
            records.bases.insert(record.name.clone(), record.clone());
            return Ok(records);
        }
    }
    Err(FleetError::Contended)
}

impl Fleet {
    /// Takes this machine's base out of the fleet: its record, and its place in `fleet.toml` at `path`.
    ///
    /// # Errors
    ///
    /// There is none, etcd does not answer, or the file cannot be written.
    pub async fn leave(mut self, path: &Path) -> Result<Name, FleetError> {
        let OwnBase { name, key } = self.file.own_base()?.clone();
        let records = self.read().await?.records;
        // Another base may have the name by now.
        if records.bases.get(&name).is_some_and(|base| base.key == key) {
            let store = &self.store;
            let gone = [
                Place::Base(name.clone()),
                Place::Alive(name.clone()),
                Place::Draining(name.clone()),
            ];
            let txn = Txn::new().and_then(gone.map(|place| delete(store, &place)));
            store.commit("leaving", txn).await?;
        }
        self.file.base = None;
        let Access { user, .. } = self.file.access()?;
        let of_base = user.is_some_and(|(user, _)| {
            let own = records.bases.get(&name).and_then(|base| base.user.as_ref());
            own.is_some_and(|own| own.as_str() == user)
        });
        if of_base {
            // That user was the base's.
            fs::remove_file(path).map_err(|source| FleetError::write(path, source))?;
        } else {
            self.file.store(path)?;
        }
        Ok(name)
    }
}
