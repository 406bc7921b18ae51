//! Lexer of the filter language: words, numbers and operators.

use super::{Comparison, FilterError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Number(f64),
    Text(Vec<u8>),
    Compare(Comparison),
    And,
    Or,
    Not,
    Open,
    Close,
}

pub(super) fn lex(text: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    const SIGNS: [(&str, Token); 13] = [
        ("&&", Token::And),
        ("||", Token::Or),
        ("=~", Token::Compare(Comparison::Contains)),
        ("==", Token::Compare(Comparison::Equal)),
        ("!=", Token::Compare(Comparison::NotEqual)),
        ("<=", Token::Compare(Comparison::LessOrEqual)),
        (">=", Token::Compare(Comparison::GreaterOrEqual)),
        ("<", Token::Compare(Comparison::Less)),
        (">", Token::Compare(Comparison::Greater)),
        ("=", Token::Compare(Comparison::Equal)),
        ("!", Token::Not),
        ("(", Token::Open),
        (")", Token::Close),
    ];
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = if next.is_whitespace() {
            next.len_utf8()
        } else if let Some((sign, token)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            tokens.push((at, token.clone()));
            sign.len()
        } else if next == '"' || next == '\'' {
            let (length, content) = lex_quoted(rest, next).ok_or_else(|| FilterError {
                at,
                what: format!("the text that begins here has no closing {next}"),
            })?;
            tokens.push((at, Token::Text(content.into_bytes())));
            length
        } else if next.is_ascii_digit() || next == '.' || next == '-' {
            let end = rest[1..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |n| n + 1);
            let number = rest[..end]
                .parse()
                .map_err(|_| FilterError { at, what: format!("`{}` is no number", &rest[..end]) })?;
            tokens.push((at, Token::Number(number)));
            end
        } else if next.is_ascii_alphabetic() || next == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push((at, Token::Name(rest[..end].to_owned())));
            end
        } else {
            return Err(FilterError { at, what: format!("`{next}` means nothing here") });
        };
        at += length;
    }
    Ok(tokens)
}

/// Bytes taken and what stands in the quotes; a backslash takes the next character as it is.
fn lex_quoted(text: &str, quote: char) -> Option<(usize, String)> {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((at + 1, content));
        }
        content.push(if c == '\\' { chars.next()?.1 } else { c });
    }
    None
}
