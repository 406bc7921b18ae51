//! Option files for client programs that log in where toll does. Never writes a file.

use crate::target::{Address, Target};
use crate::tls::Tls;
use std::path::Path;

/// Whose words a client program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFamily {
    Mariadb,
    Mysql,
    /// Not known: words of one family alone are marked with `loose-`, and those of the other stand beside them.
    Any,
}

impl ClientFamily {
    /// True if its programs know the TLS option of this name.
    fn knows(self, name: &str) -> bool {
        let is_mysql = name == "ssl-mode";
        let is_common = ["ssl-ca", "ssl-cert", "ssl-key", "tls-version"].contains(&name);
        match self {
            Self::Mariadb => !is_mysql,
            Self::Mysql => is_mysql || is_common,
            Self::Any => is_common,
        }
    }
}

/// As option files quote values.
pub fn quote_option_value(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

impl Target {
    /// An option file that says all of it: login, address, TLS.
    pub fn to_option_file(&self, family: ClientFamily) -> String {
        let mut lines = self.login_lines();
        match &self.address {
            Address::Unix(path) => {
                lines.push(format!("socket={}", quote_option_value(&path.to_string_lossy())));
            }
            Address::Tcp { host, port } => {
                lines.push(format!("host={}", quote_option_value(host)));
                lines.push(format!("port={port}"));
                lines.push("protocol=tcp".into());
            }
        }
        lines.extend(self.security_lines(family));
        lines.join("\n") + "\n"
    }

    /// The same without an address, for programs that are given one.
    pub fn to_login_file(&self, family: ClientFamily) -> String {
        let mut lines = self.login_lines();
        lines.extend(self.security_lines(family));
        lines.join("\n") + "\n"
    }

    fn login_lines(&self) -> Vec<String> {
        let mut lines = vec!["[client]".to_owned(), format!("user={}", quote_option_value(&self.user))];
        if !self.password.is_empty() {
            lines.push(format!("password={}", quote_option_value(self.password.expose())));
        }
        lines
    }

    /// TLS, and what the password may be given to. The lines of the option file that the target was read from stay as
    /// they are where the program knows them; else their meaning stands there in its words.
    pub fn security_lines(&self, family: ClientFamily) -> Vec<String> {
        let stated = &self.tls_options.lines;
        let mut lines = if !stated.is_empty() && stated.iter().all(|(name, _)| family.knows(name)) {
            stated.iter().map(|(_, line)| line.clone()).collect()
        } else {
            self.render_tls(family)
        };
        // Only MySQL's programs are asked for leave, and MariaDB's print a warning among their rows.
        if family == ClientFamily::Mysql && self.password_opt_ins.enable_cleartext_plugin {
            lines.push("loose-enable-cleartext-plugin".to_owned());
        }
        if family != ClientFamily::Mariadb {
            let opt_ins = &self.password_opt_ins;
            lines.extend(opt_ins.get_server_public_key.then(|| "loose-get-server-public-key".to_owned()));
            let key = opt_ins.server_public_key_path.as_deref();
            lines.extend(key.map(|path| file_line("loose-server-public-key-path", path)));
        }
        lines
    }

    fn render_tls(&self, family: ClientFamily) -> Vec<String> {
        let options = &self.tls_options;
        let (mode, words): (Option<&str>, &[&str]) = match &self.tls {
            Tls::Off if options.is_stated => (Some("DISABLED"), &["skip-ssl"]),
            // MariaDB's programs check certificates by default, which servers on this host need not have.
            Tls::Off if self.is_local() => (None, &["loose-skip-ssl-verify-server-cert"]),
            Tls::Off => (None, &[]),
            Tls::Required => (Some("REQUIRED"), &["ssl", "skip-ssl-verify-server-cert"]),
            // MariaDB's have no word for it, and rather check too much.
            Tls::VerifiedCa { .. } => (Some("VERIFY_CA"), &["ssl-verify-server-cert"]),
            Tls::Verified { .. } => (Some("VERIFY_IDENTITY"), &["ssl-verify-server-cert"]),
        };
        let mark = |line: String| match family {
            ClientFamily::Any if !line.starts_with("loose-") => format!("loose-{line}"),
            _ => line,
        };
        let mut lines: Vec<String> =
            self.tls.ca().map(|path| file_line("ssl-ca", path)).into_iter().collect();
        if self.tls != Tls::Off {
            if let Some(own) = &options.client_certificate {
                lines.push(file_line("ssl-cert", &own.certificate));
                lines.push(file_line("ssl-key", &own.key));
            }
            lines.extend(options.without_tls12.then(|| "tls-version=TLSv1.3".to_owned()));
            lines.extend(options.without_tls13.then(|| "tls-version=TLSv1.2".to_owned()));
        }
        if family != ClientFamily::Mariadb {
            lines.extend(mode.map(|mode| mark(format!("ssl-mode={mode}"))));
        }
        if family != ClientFamily::Mysql {
            lines.extend(words.iter().map(|word| mark((*word).to_owned())));
        }
        lines
    }
}

fn file_line(option: &str, path: &Path) -> String {
    format!("{option}={}", quote_option_value(&path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Secret;

    fn read(text: &str) -> Target {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.cnf");
        std::fs::write(&path, text).unwrap();
        Target::from_defaults_file(&path).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    #[test]
    fn an_option_file_means_the_same_server_to_whoever_reads_it() {
        let target = Target {
            address: Address::Tcp { host: "db.example".into(), port: 3307 },
            user: "o\"pen".into(),
            password: Secret::new("a#b\\s;c \"d"),
            ..Target::default()
        };
        let read = read(&target.to_option_file(ClientFamily::Mariadb));
        assert_eq!((read.address, read.user), (target.address, target.user));
        assert_eq!(read.password, target.password);
    }

    #[test]
    fn the_tls_lines_of_an_option_file_go_to_programs_that_know_them_as_they_are() {
        use ClientFamily::{Any, Mariadb, Mysql};
        for (lines, family, expected) in [
            ("ssl-mode = REQUIRED # by order", Mysql, "ssl-mode = REQUIRED # by order"),
            ("ssl-mode=DISABLED", Mysql, "ssl-mode=DISABLED"),
            ("ssl", Mariadb, "ssl"),
            ("ssl_ca='/a b/ca.pem'", Mysql, "ssl_ca='/a b/ca.pem'"),
            ("ssl_ca='/a b/ca.pem'", Mariadb, "ssl_ca='/a b/ca.pem'"),
            ("ssl-ca=/ca.pem\ntls-version=TLSv1.3", Any, "ssl-ca=/ca.pem\ntls-version=TLSv1.3"),
            (
                "loose-ssl-verify-server-cert=1\nssl-ca=/ca",
                Mariadb,
                "loose-ssl-verify-server-cert=1\nssl-ca=/ca",
            ),
            // In the other family's words.
            ("loose-ssl-mode=REQUIRED", Mariadb, "ssl\nskip-ssl-verify-server-cert"),
            ("ssl-mode=VERIFY_IDENTITY\nssl-ca=/ca", Mariadb, "ssl-ca=\"/ca\"\nssl-verify-server-cert"),
            ("ssl-mode=VERIFY_CA\nssl-ca=/ca", Mariadb, "ssl-ca=\"/ca\"\nssl-verify-server-cert"),
            ("ssl", Mysql, "ssl-mode=REQUIRED"),
            ("skip-ssl", Mysql, "ssl-mode=DISABLED"),
            ("ssl-ca=/ca\nskip-ssl-verify-server-cert", Mysql, "ssl-ca=\"/ca\"\nssl-mode=VERIFY_CA"),
            (
                "ssl\nssl-cert=/c\nssl-key=/k\ntls-version=TLSv1.3",
                Mysql,
                "ssl-cert=\"/c\"\nssl-key=\"/k\"\ntls-version=TLSv1.3\nssl-mode=REQUIRED",
            ),
            ("ssl", Any, "loose-ssl-mode=REQUIRED\nloose-ssl\nloose-skip-ssl-verify-server-cert"),
            ("get-server-public-key\nssl", Mysql, "ssl-mode=REQUIRED\nloose-get-server-public-key"),
        ] {
            let target = read(&format!("[client]\nhost=10.0.0.1\n{lines}\n"));
            assert_eq!(target.security_lines(family).join("\n"), expected, "{lines} for {family:?}");
        }
    }

    #[test]
    fn a_program_checks_the_certificate_of_another_host_unless_the_user_says_otherwise() {
        let remote = read("[client]\nhost=10.0.0.1\n");
        for family in [ClientFamily::Mariadb, ClientFamily::Mysql, ClientFamily::Any] {
            assert_eq!(remote.security_lines(family), [""; 0], "the program's own default");
        }
        let local = read("[client]\nhost=127.0.0.1\n");
        assert_eq!(local.security_lines(ClientFamily::Mariadb), ["loose-skip-ssl-verify-server-cert"]);
        assert_eq!(local.security_lines(ClientFamily::Mysql), [""; 0]);
    }
}
