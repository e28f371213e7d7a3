//! Who a server of QUIC is, and what its ends are configured with.

use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::quic;
use crate::error::LabError;

/// More than the delay-bandwidth product of any path measured here, bytes.
const WINDOW: u32 = 32 << 20;

/// A server's certificate, which it has signed itself, and its private key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The private key.
    pub secret: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// A new one of this name.
    ///
    /// # Errors
    ///
    /// The name cannot stand in a certificate.
    pub fn generate(name: &str) -> Result<Self, LabError> {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).map_err(quic)?;
        let secret = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self { certificate: made.cert.der().clone(), secret })
    }

    /// What a server with this identity is configured with.
    ///
    /// # Errors
    ///
    /// Certificate and key do not belong together, or one of them does not read.
    pub fn server(self, transport: TransportConfig) -> Result<ServerConfig, LabError> {
        let secret = PrivateKeyDer::from(self.secret);
        let config = ServerConfig::with_single_cert(vec![self.certificate], secret);
        let mut config = config.map_err(quic)?;
        config.transport_config(Arc::new(transport));
        Ok(config)
    }
}

/// What a client is configured with that knows one server, by its certificate.
///
/// # Errors
///
/// The certificate does not read.
pub fn client(
    certificate: CertificateDer<'static>,
    transport: TransportConfig,
) -> Result<ClientConfig, LabError> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(quic)?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(quic)?;
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A connection whose windows are no limit, and which is over when nothing has come for `idle`.
///
/// # Errors
///
/// QUIC cannot say so long a time.
pub fn transport(idle: Duration) -> Result<TransportConfig, LabError> {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into())
        .max_idle_timeout(Some(idle.try_into().map_err(quic)?));
    Ok(config)
}
