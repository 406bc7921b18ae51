//! String literals of SQL that mean the same in every `sql_mode`.

use std::fmt::Write;

/// `text` as a string literal.
///
/// A backslash escapes, or stands for itself under NO_BACKSLASH_ESCAPES, and a statement may run in another session than
/// it was written for. A text with one goes in hexadecimal.
pub fn sql_string(text: &str) -> String {
    if !text.contains('\\') {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut literal = "_utf8mb4 X'".to_owned();
    for byte in text.bytes() {
        // A string cannot refuse it.
        let _ = write!(literal, "{byte:02X}");
    }
    literal + "'"
}

#[cfg(test)]
mod tests {
    use super::sql_string;

    #[test]
    fn a_text_is_one_literal_in_every_mode() {
        assert_eq!(sql_string(""), "''");
        assert_eq!(sql_string("a'b\"c"), "'a''b\"c'");
        assert_eq!(sql_string("a\\'b"), "_utf8mb4 X'615C2762'");
    }
}
