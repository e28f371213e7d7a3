//! A download by QUIC, between ends that know nothing of what carries it: `quinn`'s server at the fixed host and its client
//! at the mobile.

mod identity;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use lasthop_units::{Seed, one_line};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};

pub use self::identity::{Identity, client, transport};
use crate::arrivals::Watched;
use crate::client::Stop;
use crate::content::Content;
use crate::error::LabError;
use crate::transfer::Transfer;

/// The name in the certificate.
const NAME: &str = "fixed.example";
/// Longer than any silence measured here.
const IDLE: Duration = Duration::from_secs(120);
/// How often the client looks whether it is to stop, and the pause between two attempts to connect.
const TICK: Duration = Duration::from_millis(100);
/// What the server writes at once.
const CHUNK: usize = 16 << 10;

/// The congestion control of the server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// As `quinn` has it.
    Bbr,
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        })
    }
}

/// Downloads the content of `seed` from a server at an address of the first host to the other host, until it is stopped.
///
/// # Errors
///
/// A socket or a thread cannot be had; all else is the transfer's.
pub fn download(
    (fixed, address, mobile): (&Netns, SocketAddr, &Netns),
    congestion: Congestion,
    seed: Seed,
    patience: Duration,
) -> Result<Transfer, LabError> {
    let bind = |host: &Netns, to: SocketAddr| {
        let bound = host.enter(|| UdpSocket::bind(to))?;
        bound.map_err(|e| LabError::io("a UDP socket", e))
    };
    let sockets = (bind(fixed, address)?, bind(mobile, any_towards(address))?);
    Transfer::by(seed, patience, move |received, stop| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| LabError::io("the runtime of QUIC", e))?;
        runtime.block_on(run(sockets, address, congestion, seed, patience, (received, stop)))
    })
}

/// Any address of this host's from which that one can be reached.
pub fn any_towards(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// Something of QUIC that failed, as the lab says it.
fn quic(error: impl Error) -> LabError {
    LabError::io("QUIC", io::Error::other(one_line(&error)))
}

async fn run(
    (server, client): (UdpSocket, UdpSocket),
    address: SocketAddr,
    congestion: Congestion,
    seed: Seed,
    patience: Duration,
    (received, stop): (&Watched, &Stop),
) -> Result<(), LabError> {
    let identity = Identity::generate(NAME)?;
    let certificate = identity.certificate.clone();
    let config = identity.server(controlled(congestion)?)?;
    let endpoint = |config, socket| {
        let runtime = Arc::new(TokioRuntime);
        Endpoint::new(EndpointConfig::default(), config, socket, runtime).map_err(quic)
    };
    let server = endpoint(Some(config), server)?;
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            if let Ok(connection) = incoming.await {
                tokio::spawn(serve(connection, seed));
            }
        }
    });
    let mut client = endpoint(None, client)?;
    client.set_default_client_config(self::client(certificate, controlled(congestion)?)?);
    let until = Instant::now() + patience;
    let connection =
        dial(&client, address, NAME, || Instant::now() >= until || stop.is_set()).await?;
    let mut stream = connection.accept_uni().await.map_err(quic)?;
    loop {
        tokio::select! {
            chunk = stream.read_chunk(usize::MAX, true) => match chunk.map_err(quic)? {
                Some(chunk) => received.lock().take(Instant::now(), &chunk.bytes),
                None => return Ok(()),
            },
            () = tokio::time::sleep(TICK) => {}
        }
        if stop.is_set() {
            connection.close(VarInt::from_u32(0), b"");
            client.wait_idle().await;
            return Ok(());
        }
    }
}

/// Connects to the server of this name, again and again until that is `in_vain`: a radio that loses much may need more than
/// one attempt.
///
/// # Errors
///
/// What the last attempt came to.
pub async fn dial(
    client: &Endpoint,
    to: SocketAddr,
    name: &str,
    mut in_vain: impl FnMut() -> bool,
) -> Result<Connection, LabError> {
    loop {
        match client.connect(to, name).map_err(quic)?.await {
            Ok(connection) => return Ok(connection),
            Err(error) if in_vain() => return Err(quic(error)),
            Err(_) => tokio::time::sleep(TICK).await,
        }
    }
}

/// Sends the content as fast as it is taken.
async fn serve(connection: Connection, seed: Seed) {
    let Ok(mut stream) = connection.open_uni().await else { return };
    let (mut content, mut chunk) = (Content::new(seed), vec![0; CHUNK]);
    loop {
        content.fill(&mut chunk);
        if stream.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

fn controlled(congestion: Congestion) -> Result<TransportConfig, LabError> {
    let mut config = transport(IDLE)?;
    match congestion {
        Congestion::Cubic => {
            config.congestion_controller_factory(Arc::new(CubicConfig::default()));
        }
        Congestion::Bbr => {
            config.congestion_controller_factory(Arc::new(BbrConfig::default()));
        }
    }
    Ok(config)
}
