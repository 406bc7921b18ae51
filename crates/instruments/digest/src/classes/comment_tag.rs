//! Tags in comments of statements, as sqlcommenter writes them: `/*app='shop',route='%2Forders'*/`.
//!
//! The comment is the last thing in a statement, or the first. Keys and values are percent-encoded, and a quote in a
//! value has a backslash before it. Clients decide what a tag holds: a value is bounded and printable here.

use std::fmt;

/// Bytes of a tag's name.
pub const TAG_NAME_MAX: usize = 64;
/// Bytes of a value that are kept. Values that differ later are the same.
pub const TAG_VALUE_MAX: usize = 128;

/// Name of a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TagName {
    bytes: [u8; TAG_NAME_MAX],
    length: u8,
}

impl TagName {
    /// `None`: empty, or longer than [`TAG_NAME_MAX`].
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; TAG_NAME_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let length = u8::try_from(name.len()).ok().filter(|length| *length > 0)?;
        Some(Self { bytes, length })
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Value of a tag of a statement, printable; `None`: it has no such tag.
pub fn tag_value(statement: &[u8], name: TagName) -> Option<String> {
    [last_comment(statement), first_comment(statement)]
        .into_iter()
        .flatten()
        .find_map(|comment| find_value(comment, name.as_bytes()))
        .map(|value| render_value(&value))
}

fn last_comment(statement: &[u8]) -> Option<&[u8]> {
    let end = statement.iter().rposition(|byte| !byte.is_ascii_whitespace() && *byte != b';')? + 1;
    let body = statement[..end].strip_suffix(b"*/")?;
    let start = memchr::memmem::rfind(body, b"/*")?;
    plain_comment(&body[start + 2..])
}

fn first_comment(statement: &[u8]) -> Option<&[u8]> {
    let body = statement.trim_ascii_start().strip_prefix(b"/*")?;
    let end = memchr::memmem::find(body, b"*/")?;
    plain_comment(&body[..end])
}

/// Not a hint, nor code that the server runs: that may hold literals.
fn plain_comment(body: &[u8]) -> Option<&[u8]> {
    let is_code = body.starts_with(b"!") || body.starts_with(b"+") || body.starts_with(b"M!");
    (!is_code).then_some(body)
}

/// Value of a key in `key='value',...`, decoded. `None` also for a comment that is written otherwise.
fn find_value(comment: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut rest = comment;
    loop {
        rest = rest.trim_ascii_start();
        let equals = memchr::memchr(b'=', rest)?;
        let key = rest[..equals].trim_ascii();
        let quoted = rest[equals + 1..].trim_ascii_start().strip_prefix(b"'")?;
        let end = quote_end(quoted)?;
        if decode(key) == name {
            return Some(decode(&unescape(&quoted[..end])));
        }
        rest = quoted[end + 1..].trim_ascii_start().strip_prefix(b",")?;
    }
}

/// Position of the closing quote.
fn quote_end(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr2(b'\'', b'\\', text.get(from..)?)?;
        if text[at] == b'\'' {
            return Some(at);
        }
        from = at + 2;
    }
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len().min(TAG_VALUE_MAX));
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        out.extend(if byte == b'\\' { bytes.next().copied() } else { Some(byte) });
    }
    out
}

/// Undoes percent-encoding. What is no encoding stays.
fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(text.len().min(TAG_VALUE_MAX));
    let mut at = 0;
    while at < text.len() {
        let encoded = digit(text.get(at + 1)).zip(digit(text.get(at + 2))).filter(|_| text[at] == b'%');
        match encoded.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// Bounded, and without bytes that a terminal obeys or that are no text: those are percent-encoded.
fn render_value(value: &[u8]) -> String {
    let mut out = String::new();
    let mut push = |piece: &str| {
        let is_room = out.len() + piece.len() <= TAG_VALUE_MAX;
        if is_room {
            out.push_str(piece);
        }
        is_room
    };
    let encode = |bytes: &[u8]| bytes.iter().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for chunk in value.utf8_chunks() {
        for char in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let text = char.encode_utf8(&mut bytes);
            let is_whole = if is_printable(char) { push(text) } else { push(&encode(text.as_bytes())) };
            if !is_whole {
                return out + "…";
            }
        }
        if !push(&encode(chunk.invalid())) {
            return out + "…";
        }
    }
    out
}

/// False for control characters, line ends, and characters that change the order of others or have no width.
fn is_printable(char: char) -> bool {
    let is_hidden = matches!(char,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    !char.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn tag(statement: &str, name: &str) -> Option<String> {
        tag_value(statement.as_bytes(), TagName::new(name).unwrap())
    }

    #[test]
    fn tags_of_the_specification_are_found() {
        let statement = "SELECT * FROM FOO /*action='%2Fparam*d',controller='index,\\'framework=\\'spring\\'',\
                         traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01'*/";
        assert_eq!(tag(statement, "action").as_deref(), Some("/param*d"));
        assert_eq!(tag(statement, "controller").as_deref(), Some("index,'framework='spring'"));
        assert!(tag(statement, "traceparent").unwrap().starts_with("00-5bd66ef5"));
        assert_eq!(tag(statement, "framework"), None);
        assert_eq!(tag("/*app='shop'*/ select 1", "app").as_deref(), Some("shop"));
        assert_eq!(tag("select 1 /* app = 'shop' , b='2' */ ; ", "b").as_deref(), Some("2"));
        assert_eq!(tag("select 1 /*na%20me=''*/", "na me").as_deref(), Some(""));
    }

    #[test]
    fn literals_hints_and_code_are_no_tags() {
        for statement in [
            "select '/*app=''secret''*/'",
            "select '/*app=''secret''*/' from t",
            "select 1 /*!50000 , app='secret' */",
            "/*+ app='secret' */ select 1",
            "select 1 /*M!100100 app='secret'*/",
            "insert into t set app='secret'",
            "select 1 where app='secret' -- app='secret'",
            "select 1 /* app=secret */",
            "select 1 /* app='secret */",
            "select 1 /* note, app='secret' */",
            "*/",
            "/*",
            "",
        ] {
            assert_eq!(tag(statement, "app"), None, "{statement}");
        }
    }

    #[test]
    fn a_value_is_bounded_and_printable() {
        let of = |value: &str| tag(&format!("select 1 /*a='{value}'*/"), "a").unwrap();
        assert_eq!(of("%1B[2J%0Ax%FF"), "%1B[2J%0Ax%FF");
        assert_eq!(of("%E2%80%AEevil"), "%E2%80%AEevil");
        assert_eq!(of("50%,ä"), "50%,ä");
        let long = of(&"x".repeat(10_000));
        assert_eq!(long, "x".repeat(TAG_VALUE_MAX) + "…");
        assert!(TagName::new("").is_none() && TagName::new(&"n".repeat(TAG_NAME_MAX + 1)).is_none());
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_gives_a_short_printable_value(
            body in vec(prop_oneof![Just(b'\''), Just(b'='), Just(b','), Just(b'\\'), Just(b'%'), Just(b'a'), any::<u8>()], 0..300),
        ) {
            let statement = [b"select 1 /*".as_slice(), &body, b"*/"].concat();
            if let Some(value) = tag_value(&statement, TagName::new("a").unwrap()) {
                prop_assert!(value.len() <= TAG_VALUE_MAX + "…".len());
                prop_assert!(value.chars().all(is_printable));
            }
        }
    }
}
