//! Tests that a stolen key is of use for one sender alone, and for no receiver.

use super::ends::{Keys, Receiver, SyntheticStream, new_keys, new_sender, new_sender_key, wait_until};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use toll_agent::capture::stream::{SenderKey, StreamSink};
use toll_agent::receive::{Link, MessageReader, ReadOutcome};
use toll_wire::stream_protocol::{Hello, MAX_HELLO, Message, StreamContent};

/// The receiver's answer to a hello message about this stream.
fn answer_to(receiver: &Receiver<'_>, key: &str, stream: u8, host: &str) -> (Link, String) {
    let wait = Duration::from_secs(30);
    let tcp = TcpStream::connect(&receiver.address).unwrap();
    let link = Link::connect(tcp, &SenderKey::read(Path::new(key)).unwrap(), wait).unwrap();
    let hello = Hello {
        stream: [stream; 16],
        content: StreamContent::Queries,
        begun_ns: 1,
        first: 0,
        host,
        file_header: b"opening",
    };
    let _ = link.send_message(&Message::Hello(hello));
    let mut reader = MessageReader::new(&link);
    let answer = match reader.read_message(wait, MAX_HELLO) {
        Ok(ReadOutcome::Message(message)) => format!("{message:?}"),
        Ok(ReadOutcome::Closed) => "closed".into(),
        Ok(ReadOutcome::TimedOut) => "no answer".into(),
        Err(error) => format!("{error:#}"),
    };
    drop(reader);
    (link, answer)
}

#[test]
fn a_sender_sends_under_its_own_name_and_goes_on_with_no_other_senders_stream() {
    let lab = toll_testkit::lab!();
    let keys = new_keys(&lab);
    let another = new_sender_key(&lab, &keys.receiver, "db2");
    let receiver = Receiver::start_at(&lab, "127.0.0.1:0", &keys, "captures", &[]);
    SyntheticStream::queries(2, 100).send(&mut new_sender(&receiver.address, &another));
    assert_eq!(receiver.one_account()["host"], "db2");
    let name = receiver.files()[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("db2-"), "{name}");

    let (link, answer) = answer_to(&receiver, &keys.sender, 7, "db2");
    assert_eq!(answer, "Welcome { next: 0 }");
    let (_, refused) = answer_to(&receiver, &another, 7, "db1");
    assert!(refused.contains("another sender's stream"), "{refused}");
    link.close();
    assert!(answer_to(&receiver, &another, 7, "db1").1.contains("another sender's stream"));
    // Its own sender goes on with it.
    let (_again, answer) = answer_to(&receiver, &keys.sender, 7, "x");
    assert_eq!(answer, "Welcome { next: 0 }");
    let (accounts, _) = receiver.end_with_accounts("TERM");
    let hosts: Vec<_> = accounts.iter().map(|account| account["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["db2", "db1"], "{accounts:?}");
}

#[test]
fn a_senders_key_makes_no_receiver() {
    let lab = toll_testkit::lab!();
    let keys = new_keys(&lab);
    let stolen = std::fs::read_to_string(&keys.sender).unwrap();
    let others = new_sender_key(&lab, &keys.receiver, "db2");
    // Somebody on the sender's host makes a receiver's file of it, which takes the other senders.
    let list = std::fs::read_to_string(&keys.receiver).unwrap();
    let list: String =
        list.lines().filter(|line| line.starts_with("sender ")).map(|line| format!("{line}\n")).collect();
    let own: String = stolen
        .lines()
        .filter(|line| !line.starts_with("receiver "))
        .map(|line| format!("{line}\n"))
        .collect();
    let forged = lab.path("forged.key");
    toll_sys::private_file::write(Path::new(&forged), &format!("{own}{list}")).unwrap();
    let keys = Keys { receiver: forged, sender: keys.sender };
    let impostor = Receiver::start_at(&lab, "127.0.0.1:0", &keys, "captures", &[]);
    let key = SenderKey::read(Path::new(&others)).unwrap();
    let refused = format!("{:#}", StreamSink::connect(&impostor.address, &key).err().unwrap());
    assert!(refused.contains("the receiver has another key"), "{refused}");
    assert_eq!(impostor.files().len(), 0);
}

#[test]
fn a_sender_without_its_line_sends_nothing_and_both_ends_say_so() {
    let lab = toll_testkit::lab!();
    let keys = new_keys(&lab);
    new_sender_key(&lab, &keys.receiver, "db2");
    let text = std::fs::read_to_string(&keys.receiver).unwrap();
    let rest: String = text
        .lines()
        .filter(|line| !line.starts_with("sender db1 "))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&keys.receiver, rest).unwrap();
    let receiver = Receiver::start_at(&lab, "127.0.0.1:0", &keys, "captures", &[]);
    assert!(receiver.words().contains("from db2"), "{}", receiver.words());
    let (_, answer) = answer_to(&receiver, &keys.sender, 1, "db1");
    assert!(answer.contains("the receiver does not know this sender's key"), "{answer}");
    wait_until("the receiver says so", || {
        receiver.words().contains("its key is none of this receiver's senders")
    });
    let mut stream = new_sender(&receiver.address, &keys.sender);
    SyntheticStream::queries(1, 100).begin(&mut stream);
    assert_eq!(stream.buffer_fill().bytes().0, 0);
    assert_eq!(receiver.files().len(), 0);
}

#[test]
fn key_files_of_others_and_for_a_group_are_refused_at_both_ends() {
    use std::os::unix::fs::PermissionsExt;
    let lab = toll_testkit::lab!();
    let keys = new_keys(&lab);
    let ends: [(&str, Vec<&str>); 2] = [
        (&keys.receiver, vec!["receive", "--listen", "127.0.0.1:0", "-w", "x", "--key", &keys.receiver]),
        (&keys.sender, vec!["capture", "--stream", "localhost:3399", "--key", &keys.sender]),
    ];
    for (key, args) in ends {
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o640)).unwrap();
        let output = lab.toll(&args);
        let text = crate::lab::output_text(&output);
        assert!(output.status.code() == Some(1) && text.contains("chmod 600"), "{args:?}: {text}");
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
        if std::os::unix::fs::chown(key, Some(65_534), None).is_err() {
            toll_testkit::skip!("giving a file to another user needs root");
            return;
        }
        let output = lab.toll(&args);
        let text = crate::lab::output_text(&output);
        assert!(
            output.status.code() == Some(1) && text.contains("belongs to user 65534"),
            "{args:?}: {text}"
        );
    }
}
