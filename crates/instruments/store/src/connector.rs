//! HTTP client of a bucket, with its own provider of cryptography for TLS.
//!
//! Never takes or sets the provider of the process, which is another's to choose.

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions, Error, Result};
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;
use std::time::Duration;

/// Makes clients with the options that this crate and `object_store` set: the rest is as in the client of
/// `object_store`, which offers no way to pass a TLS configuration.
#[derive(Debug)]
pub struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let tls = tls().map_err(failed)?;
        let allows_http =
            options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|it| it == "true");
        let mut client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("toll/", env!("CARGO_PKG_VERSION")))
            .https_only(!allows_http)
            // Faster for large objects, and the usual choice of `object_store`.
            .http1_only();
        if let Some(timeout) = connect_timeout(options) {
            client = client.connect_timeout(timeout);
        }
        Ok(HttpClient::new(client.build().map_err(failed)?))
    }
}

fn tls() -> std::result::Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(versions.with_platform_verifier()?.with_no_client_auth())
}

/// Seconds, of requests to a bucket and fewer of those for an instance's credentials.
fn connect_timeout(options: &ClientOptions) -> Option<Duration> {
    let text = options.get_config_value(&ClientConfigKey::ConnectTimeout)?;
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "S3", source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_tls_needs_no_provider_of_the_process_and_sets_none() {
        let options = ClientOptions::new().with_connect_timeout(Duration::from_secs(10));
        Connector.connect(&options).unwrap();
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
        assert_eq!(connect_timeout(&options), Some(Duration::from_secs(10)));
    }
}
