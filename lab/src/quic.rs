//! A download by QUIC, between ends that know nothing of what carries it: `quinn`'s server at the fixed host and its client
//! at the mobile.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use lasthop_units::Seed;
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::arrivals::Watched;
use crate::client::Stop;
use crate::content::Content;
use crate::error::LabError;
use crate::transfer::Transfer;

/// The name in the certificate.
const NAME: &str = "fixed.example";
/// More than the delay-bandwidth product of any path measured here.
const WINDOW: u32 = 32 << 20;
/// Longer than any silence measured here.
const IDLE: Duration = Duration::from_secs(120);
/// How often the client looks whether it is to stop.
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
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let bind = |host: &Netns, to: SocketAddr| {
        let bound = host.enter(|| UdpSocket::bind(to))?;
        bound.map_err(|e| LabError::io("a UDP socket", e))
    };
    let sockets = (bind(fixed, address)?, bind(mobile, any)?);
    Transfer::by(seed, patience, move |received, stop| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| LabError::io("the runtime of QUIC", e))?;
        runtime.block_on(run(sockets, address, congestion, seed, patience, (received, stop)))
    })
}

/// Something of QUIC that failed, as the lab says it.
fn quic(error: impl fmt::Display) -> LabError {
    LabError::io("QUIC", io::Error::other(error.to_string()))
}

async fn run(
    (server, client): (UdpSocket, UdpSocket),
    address: SocketAddr,
    congestion: Congestion,
    seed: Seed,
    patience: Duration,
    (received, stop): (&Watched, &Stop),
) -> Result<(), LabError> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).map_err(quic)?;
    let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let certificate = made.cert.der().clone();
    let mut config =
        ServerConfig::with_single_cert(vec![certificate.clone()], secret).map_err(quic)?;
    config.transport_config(Arc::new(transport(congestion)?));
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
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(quic)?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(quic)?;
    config.transport_config(Arc::new(transport(congestion)?));
    let mut client = endpoint(None, client)?;
    client.set_default_client_config(config);
    let connection = dial(&client, address, Instant::now() + patience, stop).await?;
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

/// A radio that loses much may need more than one attempt.
async fn dial(
    client: &Endpoint,
    to: SocketAddr,
    until: Instant,
    stop: &Stop,
) -> Result<Connection, LabError> {
    loop {
        match client.connect(to, NAME).map_err(quic)?.await {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() >= until || stop.is_set() => return Err(quic(error)),
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

fn transport(congestion: Congestion) -> Result<TransportConfig, LabError> {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into())
        .max_idle_timeout(Some(IDLE.try_into().map_err(quic)?));
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
