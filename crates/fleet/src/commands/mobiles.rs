//! Mobiles of a fleet.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use etcd_client::Txn;
use lasthop_daemon::base::Acknowledge;
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_kernel::network::Network;

use super::{Fleet, ROUNDS, is_absent, none_new, put, taken, whole};
use crate::error::FleetError;
use crate::files;
use crate::members;
use crate::records::{Key, MobileRecord, Name, Place, Records};
use crate::store::Snapshot;

/// A mobile that is to be of the fleet.
#[derive(Clone, Debug)]
pub struct MobileOptions {
    /// Its name.
    pub name: Name,
    /// From where its connections leave.
    pub address: Vec<IpAddr>,
    /// Networks behind it.
    pub network: Vec<Network>,
    /// Addresses of packets alone.
    pub tun: Vec<IpAddr>,
    /// What fixed hosts are acknowledged.
    pub acknowledge: Acknowledge,
    /// Its public key, where it has one.
    pub key: Option<Key>,
    /// Where its files are written.
    pub folder: PathBuf,
}

/// A mobile that was added.
#[derive(Clone, Debug)]
pub struct AddedMobile {
    /// Its public key.
    pub key: Key,
    /// The file of its secret key, if that was made here.
    pub secret: Option<PathBuf>,
    /// Its configuration.
    pub config: PathBuf,
    /// Bases for which the configuration had no place.
    pub left_out: usize,
}

impl Fleet {
    /// Adds a mobile, and writes its files. Whose etcd did not answer may do the same again.
    ///
    /// # Errors
    ///
    /// Its name, key or an address is another's, a file is there already, or etcd does not answer.
    pub async fn add_mobile(&self, options: &MobileOptions) -> Result<AddedMobile, FleetError> {
        let folder = whole(&options.folder)?;
        files::make_folder(&folder)?;
        let secret = folder.join(format!("{}.key", options.name));
        let config = folder.join(format!("{}.toml", options.name));
        if config.symlink_metadata().is_ok() {
            return Err(FleetError::Exists(config));
        }
        let was_there = secret.symlink_metadata().is_ok();
        let (key, made) = match options.key {
            Some(key) => (key, None),
            // Left by a try of which nobody knows what came of it.
            None if was_there => (Key(*keyfile::load(&secret)?.public()), Some(secret.clone())),
            None => {
                let keys = keyfile::generate().map_err(FleetError::Entropy)?;
                keyfile::store(&secret, &keys, Existing::Keep)?;
                (Key(*keys.public()), Some(secret.clone()))
            }
        };
        let MobileOptions { name, address, network, tun, acknowledge, .. } = options.clone();
        let mobile = MobileRecord { name, key, address, network, tun, acknowledge };
        let records = match self.register_mobile(&mobile).await {
            Ok(records) => records,
            Err(error) => {
                // A key that nobody knows is of no use; where etcd did not answer it may know it.
                let refused = !matches!(error, FleetError::Store(_));
                let _ = made.filter(|_| refused && !was_there).map(fs::remove_file);
                return Err(error);
            }
        };
        let (text, left_out) = members::mobile(&records, &self.file.name, &mobile, &secret);
        files::write(&config, &text)?;
        Ok(AddedMobile { key, secret: made, config, left_out })
    }

    /// Adds a mobile if nobody has anything of what it has.
    pub(crate) async fn register_mobile(
        &self,
        mobile: &MobileRecord,
    ) -> Result<Records, FleetError> {
        mobile.check()?;
        let store = &self.store;
        let place = Place::Mobile(mobile.key);
        for _ in 0..ROUNDS {
            let Snapshot { records, revision, .. } = self.read().await?;
            taken(&records, &mobile.name, &mobile.key)?;
            if let Some(there) = records.mobiles.get(&mobile.key) {
                if there == mobile {
                    return Ok(records);
                }
                return Err(FleetError::Taken(format!("{} is of the fleet already", mobile.name)));
            }
            let others = records.mobiles.values();
            if let Some((other, ip)) =
                others.filter_map(|other| Some((other, mobile.shares_with(other)?))).next()
            {
                return Err(FleetError::Taken(format!("{ip} is {}'s address already", other.name)));
            }
            let txn = Txn::new()
                .when([
                    none_new(store, Place::MOBILES, revision),
                    none_new(store, Place::BASES, revision),
                    is_absent(store, &place),
                    is_absent(store, &Place::Revoked(mobile.key)),
                ])
                .and_then([put(store, &place, mobile)]);
            if store.commit("adding a mobile", txn).await? {
                return Ok(records);
            }
        }
        Err(FleetError::Contended)
    }
}
