//! A plain tunnel: each TCP connection becomes one bidirectional QUIC stream of one QUIC
//! connection, made with the `quinn` crate. Its two ends are subcommands of this command, so that
//! they run as processes of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use lasthop_lab::quic::{self, Identity};
use lasthop_units::Rate;
use quinn::congestion::BbrConfig;
use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::told::ToldConfig;

/// The name in the certificate.
const NAME: &str = "base";
const CERTIFICATE: &str = "certificate.der";
const SECRET: &str = "secret.der";
const BUFFER: usize = 64 << 10;
const CONNECTIONS: u32 = 4096;
/// A tunnel should outlive the longest silence measured here.
const IDLE: Duration = Duration::from_secs(180);
/// How often the mobile tries to reach the base.
const ATTEMPTS: u32 = 20;
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What both ends are told.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// A directory with the base's certificate and key
    #[arg(long)]
    identity: PathBuf,
    /// Pace to this rate instead of measuring it with BBR
    #[arg(long)]
    told: Option<Rate>,
}

/// The end at the base.
#[derive(Args, Debug)]
pub(crate) struct BaseOptions {
    #[command(flatten)]
    common: Common,
    /// Where to wait for the mobile
    #[arg(long)]
    listen: SocketAddr,
    /// Where every connection goes
    #[arg(long)]
    target: SocketAddr,
}

/// The end at the mobile.
#[derive(Args, Debug)]
pub(crate) struct MobileOptions {
    #[command(flatten)]
    common: Common,
    /// Where to take connections
    #[arg(long)]
    listen: SocketAddr,
    /// Where the base is
    #[arg(long)]
    base: SocketAddr,
}

/// Writes a new self-signed identity into `directory`.
pub(crate) fn make_identity(directory: &Path) -> Result<()> {
    let made = Identity::generate(NAME).context("making a certificate")?;
    std::fs::write(directory.join(CERTIFICATE), &made.certificate)
        .and_then(|()| std::fs::write(directory.join(SECRET), made.secret.secret_pkcs8_der()))
        .with_context(|| format!("writing to {}", directory.display()))
}

/// Runs the end at the base until it is killed.
pub(crate) fn run_base(options: &BaseOptions) -> Result<()> {
    runtime()?.block_on(async {
        let endpoint = Endpoint::server(server_config(&options.common)?, options.listen)
            .with_context(|| format!("listening on {}", options.listen))?;
        while let Some(incoming) = endpoint.accept().await {
            let target = options.target;
            tokio::spawn(async move {
                if let Ok(connection) = incoming.await {
                    serve(connection, target).await;
                }
            });
        }
        Ok(())
    })
}

/// Runs the end at the mobile until it is killed. It listens once the tunnel stands.
pub(crate) fn run_mobile(options: &MobileOptions) -> Result<()> {
    runtime()?.block_on(async {
        let any = quic::any_towards(options.base);
        let mut endpoint = Endpoint::client(any).context("opening a socket")?;
        endpoint.set_default_client_config(client_config(&options.common)?);
        let tunnel = dial(&endpoint, options.base).await?;
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("listening on {}", options.listen))?;
        loop {
            let (tcp, _) = listener.accept().await.context("accepting a connection")?;
            let tunnel = tunnel.clone();
            tokio::spawn(async move {
                if let Ok((send, receive)) = open_stream(&tunnel).await {
                    relay(tcp, send, receive).await;
                }
            });
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")
}

async fn dial(endpoint: &Endpoint, base: SocketAddr) -> Result<Connection> {
    let mut attempts = 0;
    let in_vain = || {
        attempts += 1;
        attempts == ATTEMPTS
    };
    let tunnel = quic::dial(endpoint, base, NAME, in_vain).await;
    tunnel.with_context(|| format!("reaching the base at {base}"))
}

/// A byte goes first: the base learns of a stream from what comes on it, and there are protocols
/// in which the server speaks first.
async fn open_stream(tunnel: &Connection) -> Result<(SendStream, RecvStream)> {
    let (mut send, receive) = tunnel.open_bi().await?;
    send.write_all(&[0]).await?;
    Ok((send, receive))
}

async fn serve(tunnel: Connection, target: SocketAddr) {
    while let Ok((send, mut receive)) = tunnel.accept_bi().await {
        tokio::spawn(async move {
            if receive.read_exact(&mut [0]).await.is_err() {
                return;
            }
            if let Ok(tcp) = TcpStream::connect(target).await {
                relay(tcp, send, receive).await;
            }
        });
    }
}

/// Copies both ways until both are done; a half that breaks takes the other with it.
async fn relay(tcp: TcpStream, mut send: SendStream, receive: RecvStream) {
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let (from_tcp, mut to_tcp) = tcp.into_split();
    let out = async {
        let mut from_tcp = BufReader::with_capacity(BUFFER, from_tcp);
        tokio::io::copy_buf(&mut from_tcp, &mut send).await?;
        send.finish().map_err(std::io::Error::other)
    };
    let back = async {
        let mut receive = BufReader::with_capacity(BUFFER, receive);
        tokio::io::copy_buf(&mut receive, &mut to_tcp).await?;
        to_tcp.shutdown().await
    };
    // A broken connection is the measuring client's to notice.
    let _ = tokio::try_join!(out, back);
}

fn server_config(common: &Common) -> Result<quinn::ServerConfig> {
    let (certificate, secret) = (read(common, CERTIFICATE)?.into(), read(common, SECRET)?.into());
    let identity = Identity { certificate, secret };
    identity.server(transport(common)?).context("the base's certificate")
}

fn client_config(common: &Common) -> Result<quinn::ClientConfig> {
    let certificate = read(common, CERTIFICATE)?.into();
    quic::client(certificate, transport(common)?).context("the base's certificate")
}

fn transport(common: &Common) -> Result<TransportConfig> {
    let mut config = quic::transport(IDLE)?;
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(CONNECTIONS))
        .keep_alive_interval(Some(KEEP_ALIVE));
    match common.told {
        Some(rate) => config.congestion_controller_factory(Arc::new(ToldConfig { rate })),
        None => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    Ok(config)
}

fn read(common: &Common, name: &str) -> Result<Vec<u8>> {
    let path = common.identity.join(name);
    std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo, a base and a mobile in this process.
    async fn tunnel(common: &Common) -> (Connection, Endpoint) {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = echo.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = tcp.into_split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        let any = "127.0.0.1:0".parse().unwrap();
        let base = Endpoint::server(server_config(common).unwrap(), any).unwrap();
        let at = base.local_addr().unwrap();
        tokio::spawn(async move {
            let connection = base.accept().await.unwrap().await.unwrap();
            serve(connection, target).await;
        });
        let mut mobile = Endpoint::client(any).unwrap();
        mobile.set_default_client_config(client_config(common).unwrap());
        (dial(&mobile, at).await.unwrap(), mobile)
    }

    fn carries(told: Option<Rate>) {
        let directory = tempfile::tempdir().unwrap();
        make_identity(directory.path()).unwrap();
        let common = Common { identity: directory.path().to_owned(), told };
        runtime().unwrap().block_on(async {
            let (tunnel, _endpoint) = tunnel(&common).await;
            let (mut send, mut receive) = open_stream(&tunnel).await.unwrap();
            let sent = vec![7; 300_000];
            let all = sent.clone();
            tokio::spawn(async move {
                send.write_all(&all).await.unwrap();
                send.finish().unwrap();
                send.stopped().await
            });
            let got = receive.read_to_end(2 * sent.len()).await.unwrap();
            assert!(got == sent);
        });
    }

    #[test]
    fn bytes_and_their_end_cross_the_tunnel_and_come_back() {
        carries(None);
    }

    #[test]
    fn a_tunnel_told_its_rate_carries_as_well() {
        carries(Some(Rate::from_mbps(500)));
    }

    #[test]
    fn a_missing_identity_is_named() {
        let common = Common { identity: "/no/such".into(), told: None };
        let error = client_config(&common).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/certificate.der"));
    }
}
