//! TLS certificate of a sandbox server.
//!
//! MySQL creates one itself at its start. MariaDB before 11.4 offers no TLS without one.

use super::program::{Flavour, ServerProgram};
use anyhow::{Context, Result};
use std::path::Path;

/// Settings that name a fresh certificate in `home`; none for servers that make their own.
pub(super) fn tls_settings(program: &ServerProgram, home: &Path) -> Result<Vec<String>> {
    if program.flavour != Flavour::Mariadb {
        return Ok(Vec::new());
    }
    let names = ["localhost", "127.0.0.1", "::1"].map(String::from);
    let made = rcgen::generate_simple_self_signed(names).context("cannot make a certificate for TLS")?;
    let mut settings = Vec::new();
    for (setting, file, pem) in [
        ("ssl_cert", "server-cert.pem", made.cert.pem()),
        ("ssl_key", "server-key.pem", made.signing_key.serialize_pem()),
    ] {
        let path = home.join(file);
        toll_sys::private_file::write(&path, &pem)?;
        settings.push(format!("{setting}={}", path.display()));
    }
    Ok(settings)
}
