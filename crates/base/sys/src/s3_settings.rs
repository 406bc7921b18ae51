//! Credentials and endpoint of an S3 store.
//!
//! They come from the environment (`AWS_*`), else from the profile in `~/.aws/credentials` and
//! `~/.aws/config`, as for the AWS command line. Never from toll's own command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Values found, by the names of their environment variables: `AWS_ACCESS_KEY_ID`, ...
pub fn read_settings(variable: impl Fn(&str) -> Option<String>) -> BTreeMap<&'static str, String> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".into());
    let file = |named: &str, below_home: &str| -> Option<String> {
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".aws").join(below_home));
        let path = variable(named).map(PathBuf::from).or_else(home)?;
        std::fs::read_to_string(path).ok()
    };
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
    let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
    let of_credentials = section(&credentials, &profile);
    // In this file alone all profiles but the default one have the word before their name.
    let titled = if profile == "default" { profile.clone() } else { format!("profile {profile}") };
    let of_config = section(&config, &titled);
    const KEYS: [(&str, &str); 5] = [
        ("AWS_ACCESS_KEY_ID", "aws_access_key_id"),
        ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
        ("AWS_SESSION_TOKEN", "aws_session_token"),
        ("AWS_REGION", "region"),
        ("AWS_ENDPOINT_URL", "endpoint_url"),
    ];
    // A token without its key, or one key beside another's secret, would be neither's: they come together.
    let own_key = variable("AWS_ACCESS_KEY_ID").is_some();
    let mut found = BTreeMap::new();
    for (name, key) in KEYS {
        let is_credential = !matches!(name, "AWS_REGION" | "AWS_ENDPOINT_URL");
        let alias = match name {
            "AWS_REGION" => variable("AWS_DEFAULT_REGION"),
            "AWS_ENDPOINT_URL" => variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT")),
            _ => None,
        };
        let of_files = || {
            if is_credential && own_key {
                return None;
            }
            of_credentials.get(key).or_else(|| of_config.get(key)).cloned()
        };
        if let Some(value) = variable(name).or(alias).or_else(of_files) {
            found.insert(name, value);
        }
    }
    found
}

/// Host of an endpoint that is reached without TLS by way of a network.
pub fn plain_host(endpoint: &str) -> Option<&str> {
    let (scheme, rest) = endpoint.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    (scheme.eq_ignore_ascii_case("http") && !is_here).then_some(host)
}

fn section(text: &str, title: &str) -> BTreeMap<String, String> {
    let mut inside = false;
    let mut values = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = name.trim() == title;
        } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_tls_on_another_host_is_known() {
        for endpoint in ["http://store.example:9000", "HTTP://store.example/x", "http://u:p@store.example"] {
            assert_eq!(plain_host(endpoint), Some("store.example"), "{endpoint}");
        }
        assert_eq!(plain_host("http://[fd00::1]:9000"), Some("fd00::1"));
        for endpoint in [
            "https://store.example",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://localhost/",
            "store.example",
        ] {
            assert_eq!(plain_host(endpoint), None, "{endpoint}");
        }
    }

    #[test]
    fn the_environment_goes_before_the_profile_and_credentials_come_together() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(dir.path().join(".aws").join(name), text).unwrap();
        write(
            "credentials",
            "[default]\naws_access_key_id = a\n# [shop]\n[shop]\naws_access_key_id=b\naws_secret_access_key=c\n\
             aws_session_token=d\n",
        );
        write(
            "config",
            "[profile shop]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:1\n[shop]\nregion=x\n",
        );
        let home = dir.path().display().to_string();
        let read = |environment: &[(&str, &str)]| {
            let found = read_settings(|name| match name {
                "HOME" => Some(home.clone()),
                _ => environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
            });
            found.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(read(&[]), "AWS_ACCESS_KEY_ID=a");
        assert_eq!(
            read(&[("AWS_PROFILE", "shop")]),
            "AWS_ACCESS_KEY_ID=b AWS_ENDPOINT_URL=http://127.0.0.1:1 AWS_REGION=eu-west-1 \
             AWS_SECRET_ACCESS_KEY=c AWS_SESSION_TOKEN=d"
        );
        assert_eq!(
            read(&[("AWS_PROFILE", "shop"), ("AWS_ACCESS_KEY_ID", "e"), ("AWS_SECRET_ACCESS_KEY", "f")]),
            "AWS_ACCESS_KEY_ID=e AWS_ENDPOINT_URL=http://127.0.0.1:1 AWS_REGION=eu-west-1 AWS_SECRET_ACCESS_KEY=f"
        );
    }
}
