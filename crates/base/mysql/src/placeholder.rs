//! Placeholders of prepared statements: their places in a text, and values put into them.

/// The text between placeholders, one piece more than there are placeholders. A `?` inside quotes or backticks is text.
pub fn split_at_placeholders(sql: &str) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    let mut quote = None;
    let mut escaped = false;
    for byte in sql.bytes() {
        if byte == b'?' && quote.is_none() {
            pieces.push(Vec::new());
            continue;
        }
        match quote {
            Some(_) if escaped => escaped = false,
            Some(q) if byte == b'\\' && q != b'`' => escaped = true,
            Some(q) if byte == q => quote = None,
            None if matches!(byte, b'\'' | b'"' | b'`') => quote = Some(byte),
            _ => {}
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(byte);
        }
    }
    pieces
}

/// Puts values, separated by commas, into a statement's placeholders. `None`: their numbers differ.
pub fn substitute_params(text: &str, values: &str) -> Option<String> {
    let mut quote = None;
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in values.chars() {
        match quote {
            None if c == ',' => {
                parts.push(String::new());
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(q) if c == q => quote = None,
            _ => {}
        }
        parts.last_mut()?.push(c);
    }
    let pieces = split_at_placeholders(text);
    if values.trim().is_empty() || pieces.len() != parts.len() + 1 {
        return None;
    }
    let mut bound = String::from_utf8_lossy(&pieces[0]).into_owned();
    for (value, piece) in parts.iter().zip(&pieces[1..]) {
        bound += value.trim();
        bound += &String::from_utf8_lossy(piece);
    }
    Some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_where_the_placeholders_are() {
        let bound = |text, values| substitute_params(text, values).unwrap_or_default();
        assert_eq!(
            bound("select ?, '?' from `a?` where b = ?", "1, 'x,?'"),
            "select 1, '?' from `a?` where b = 'x,?'"
        );
        assert_eq!(bound("select ?", "'it\\'s, one'"), "select 'it\\'s, one'");
        for (text, values) in
            [("select ?", ""), ("select ?, ?", "1"), ("select ?", "1, 2"), ("select 1", "1")]
        {
            assert_eq!(substitute_params(text, values), None, "{text} {values}");
        }
    }
}
