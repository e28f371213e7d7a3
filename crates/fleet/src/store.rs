//! etcd: what a fleet asks of it.
//!
//! One member is spoken to at a time, and whoever uses this connects anew after any error: then the next
//! one is tried, and everything is read again, so that nothing depends on what a lost answer said.

pub(crate) mod users;
mod watch;

use std::future::Future;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, GetOptions, Identity, LeaseKeepAliveStream,
    LeaseKeeper, TlsOptions, Txn,
};
use lasthop_control::grid::printable;
use lasthop_units::one_line;
use thiserror::Error as ThisError;

use crate::records::{Name, Records};
use crate::token::Secret;

pub use self::watch::{Change, Changes};

/// How long etcd may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a connection that is silent is looked at.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// No answer is longer: some hundred bytes for each of a hundred thousand mobiles.
const ANSWER_MAX: usize = 64 << 20;
/// How often a command tries every member.
const ROUNDS: u32 = 3;

/// Why etcd was of no use.
#[derive(Clone, Debug, ThisError)]
pub enum StoreError {
    /// No member can be used.
    #[error("no member of etcd can be used: {0}")]
    Away(String),
    /// A member refused, or did not answer.
    #[error("etcd at {endpoint}, {doing}: {why}")]
    Failed {
        /// The member.
        endpoint: String,
        /// What was asked.
        doing: &'static str,
        /// What it said.
        why: String,
    },
    /// What was to be followed is not kept by etcd any more.
    #[error("etcd does not keep changes from revision {0} on any more")]
    Compacted(i64),
    /// A lease ended.
    #[error("the lease ran out")]
    LeaseGone,
}

/// How etcd is reached.
#[derive(Clone, Debug)]
pub struct Access {
    /// Where it is; each is tried until one answers.
    pub endpoints: Vec<String>,
    /// The certificates of who may speak for it, in PEM.
    pub ca: Option<String>,
    /// Our own certificate and its key, in PEM.
    pub identity: Option<(String, Secret)>,
    /// Our user and his password.
    pub user: Option<(String, Secret)>,
}

/// A fleet's records in etcd.
#[derive(Clone)]
pub struct Store {
    client: Client,
    endpoint: String,
    prefix: String,
}

/// All records at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The records.
    pub records: Records,
    /// The moment, as etcd counts.
    pub revision: i64,
    /// Keys whose records are of no use, and why.
    pub problems: Vec<(String, String)>,
}

/// A lease that is kept alive by its owner.
#[derive(Debug)]
pub struct Lease {
    /// Its number.
    pub id: i64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// What an error of etcd says to people.
fn said(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => match std::error::Error::source(status) {
            Some(source) => one_line(source),
            None => status.message().to_owned(),
        },
        Error::TransportError(error) => one_line(error),
        other => other.to_string(),
    }
}

fn options(access: &Access) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(PATIENCE)
        .with_keep_alive(KEEP_ALIVE, PATIENCE)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if access.ca.is_some() || access.identity.is_some() {
        let mut tls = TlsOptions::new();
        if let Some(ca) = &access.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((cert, key)) = &access.identity {
            tls = tls.identity(Identity::from_pem(cert, key.as_str()));
        }
        options = options.with_tls(tls);
    }
    if let Some((user, password)) = &access.user {
        options = options.with_user(user.as_str(), password.as_str());
    }
    options
}

impl Store {
    /// Connects with a member that answers, trying them once each from the one with the number `first`.
    ///
    /// # Errors
    ///
    /// None of them does; each is named with what it said.
    pub async fn connect(access: &Access, fleet: &Name, first: usize) -> Result<Self, StoreError> {
        let mut failures = Vec::new();
        let count = access.endpoints.len().max(1);
        for endpoint in access.endpoints.iter().cycle().skip(first % count).take(count) {
            match Self::connect_to(endpoint, access, fleet).await {
                Ok(store) => return Ok(store),
                Err(why) => failures.push(format!("{endpoint}: {why}")),
            }
        }
        Err(StoreError::Away(failures.join("; ")))
    }

    /// Connects as a command does, which waits for members that choose a leader.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_patiently(access: &Access, fleet: &Name) -> Result<Self, StoreError> {
        let mut round = 1;
        loop {
            match Self::connect(access, fleet, 0).await {
                Err(_) if round < ROUNDS => tokio::time::sleep(Duration::from_millis(500)).await,
                result => return result,
            }
            round += 1;
        }
    }

    async fn connect_to(endpoint: &str, access: &Access, fleet: &Name) -> Result<Self, String> {
        let prefix = format!("/lasthop/{fleet}/");
        let try_it = async {
            let client = Client::connect([endpoint], Some(options(access))).await?;
            // Only one that is connected with most others answers this.
            client.kv_client().get(format!("{prefix}settings"), None).await?;
            Ok(client)
        };
        match tokio::time::timeout(PATIENCE, try_it).await {
            Ok(Ok(client)) => Ok(Self { client, endpoint: endpoint.to_owned(), prefix }),
            Ok(Err(error)) => Err(said(&error)),
            Err(_) => Err(format!("no answer in {} s", PATIENCE.as_secs())),
        }
    }

    /// The whole key of what is below the fleet's prefix at `path`.
    pub(crate) fn key(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    async fn within<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let why = match tokio::time::timeout(PATIENCE, work).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => said(&error),
            Err(_) => format!("no answer in {} s", PATIENCE.as_secs()),
        };
        Err(StoreError::Failed { endpoint: self.endpoint.clone(), doing, why })
    }

    /// Reads all records.
    ///
    /// # Errors
    ///
    /// etcd refuses or does not answer.
    pub async fn read(&self) -> Result<Snapshot, StoreError> {
        let mut kv = self.client.kv_client().max_decoding_message_size(ANSWER_MAX);
        let all = GetOptions::new().with_prefix();
        let answer =
            self.within("reading the fleet", kv.get(self.prefix.as_str(), Some(all))).await?;
        let revision = answer.header().map_or(0, |header| header.revision());
        let mut snapshot = Snapshot { records: Records::default(), revision, problems: Vec::new() };
        for pair in answer.kvs() {
            let Some(path) = self.path(pair.key()) else { continue };
            if let Err(why) = snapshot.records.apply(&path, Some(pair.value())) {
                snapshot.problems.push((path, printable(&why.to_string()).into_owned()));
            }
        }
        Ok(snapshot)
    }

    /// What is below the fleet's prefix in a key.
    fn path(&self, key: &[u8]) -> Option<String> {
        let path = key.strip_prefix(self.prefix.as_bytes())?;
        Some(String::from_utf8_lossy(path).into_owned())
    }

    /// Does all of a transaction, or nothing of it; says whether its conditions held.
    pub(crate) async fn commit(&self, doing: &'static str, txn: Txn) -> Result<bool, StoreError> {
        let mut kv = self.client.kv_client();
        Ok(self.within(doing, kv.txn(txn)).await?.succeeded())
    }

    /// A lease of `ttl` that is left to run out.
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<i64, StoreError> {
        let seconds = i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        let mut leases = self.client.lease_client();
        Ok(self.within("asking for a lease", leases.grant(seconds, None)).await?.id())
    }

    /// A lease of `ttl` that its owner keeps alive.
    pub(crate) async fn lease(&self, ttl: Duration) -> Result<Lease, StoreError> {
        let id = self.grant(ttl).await?;
        let mut leases = self.client.lease_client();
        let (keeper, answers) = self.within("keeping a lease alive", leases.keep_alive(id)).await?;
        Ok(Lease { id, keeper, answers })
    }

    /// Keeps a lease alive for another while.
    pub(crate) async fn keep_alive(&self, lease: &mut Lease) -> Result<(), StoreError> {
        let doing = "keeping a lease alive";
        let Lease { keeper, answers, .. } = lease;
        let again = async {
            keeper.keep_alive().await?;
            answers.message().await
        };
        match self.within(doing, again).await? {
            Some(answer) if answer.ttl() > 0 => Ok(()),
            Some(_) => Err(StoreError::LeaseGone),
            None => {
                let why = "the connection ended".to_owned();
                Err(StoreError::Failed { endpoint: self.endpoint.clone(), doing, why })
            }
        }
    }

    /// Ends a lease, and every record under it.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        let mut leases = self.client.lease_client();
        self.within("ending a lease", leases.revoke(lease)).await.map(drop)
    }
}
