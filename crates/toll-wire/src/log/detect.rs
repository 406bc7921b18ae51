//! What kind of file is this? Judged by its first bytes, never by its name.

use super::slow::is_server_header;
use super::time::written;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Pcap,
    /// What `tcpdump -x`, `-xx` or `-X` prints.
    TcpdumpText,
    SlowLog,
    GeneralLog,
    AuditLog,
    Gzip,
    Zstd,
}

/// `head`: the first bytes, at least a few lines where there are as many. `None`: none of these.
pub fn detect(head: &[u8]) -> Option<Kind> {
    match head {
        [0x1f, 0x8b, ..] => return Some(Kind::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Some(Kind::Zstd),
        // pcap in us and ns, both byte orders; pcapng's section header.
        [0xd4, 0xc3, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0xc3, 0xd4, ..] => return Some(Kind::Pcap),
        [0x4d, 0x3c, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0x3c, 0x4d, ..] => return Some(Kind::Pcap),
        [0x0a, 0x0d, 0x0d, 0x0a, ..] => return Some(Kind::Pcap),
        _ => {}
    }
    let mut fallback = None;
    for line in head.split_inclusive(|b| *b == b'\n').take(1_000) {
        if let Some(kind) = of_line(line) {
            return Some(kind);
        }
        // Both logs begin alike; so does one without entries.
        if is_server_header(line) {
            fallback = Some(Kind::SlowLog);
        }
    }
    fallback
}

fn of_line(line: &[u8]) -> Option<Kind> {
    let is_slow =
        [b"# Time: ".as_slice(), b"# User@Host: ", b"# Query_time: ", b"# Thread_id: ", b"# Client: "]
            .iter()
            .any(|start| line.starts_with(start));
    if is_slow {
        return Some(Kind::SlowLog);
    }
    if super::general::is_start(line) {
        return Some(Kind::GeneralLog);
    }
    is_packet(line).then_some(Kind::TcpdumpText).or_else(|| is_audit(line).then_some(Kind::AuditLog))
}

/// `2009-04-12 09:50:16.804849 IP 127.0.0.1.42167 > ...`, with or without a date, or Unix time.
fn is_packet(line: &[u8]) -> bool {
    let stamp =
        line.iter().take_while(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'.' | b' ')).count();
    let rest = &line[stamp..];
    let is_time =
        line[..stamp].contains(&b'.') && line[..stamp].iter().filter(|b| b.is_ascii_digit()).count() >= 10;
    let is_ip = |text: &[u8]| text.starts_with(b"IP ") || text.starts_with(b"IP6 ");
    let after_link =
        rest.windows(4).take(120).any(|w| w == b" IP " || w == b"IPv4" || w == b"IPv6" || w == b" IP6");
    is_time && (is_ip(rest) || after_link)
}

fn is_audit(line: &[u8]) -> bool {
    let mut fields = line.splitn(8, |b| *b == b',');
    let is_time = fields.next().is_some_and(|time| {
        time.len() == 17 && time[..8].iter().all(u8::is_ascii_digit) && written(&time[2..]).is_some()
    });
    let operation = fields.nth(5);
    is_time
        && operation.is_some_and(|o| o.len() > 2 && o.iter().all(|b| b.is_ascii_uppercase() || *b == b'_'))
}
