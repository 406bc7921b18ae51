//! Counts with a noun, and error codes with their counts, as text.
//!
//! Never spells a number out. Supports only nouns whose plural ends in `s`.

use std::collections::BTreeMap;

/// `1 table`, `2 tables`.
pub fn format_count(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Maximum number of codes in the text: the most frequent ones.
const MAX_CODES: usize = 5;

/// Error codes and counts as text, the most frequent first: `1205 (12 times), 1213 (3)`.
pub fn format_error_codes(errors_by_code: &BTreeMap<u16, u64>) -> String {
    let mut codes: Vec<(u16, u64)> = errors_by_code.iter().map(|(code, n)| (*code, *n)).collect();
    codes.sort_by_key(|(code, n)| (std::cmp::Reverse(*n), *code));
    let times = |i: usize| if i == 0 { " times" } else { "" };
    let named = codes.iter().take(MAX_CODES).enumerate();
    let mut words: Vec<String> = named.map(|(i, (code, n))| format!("{code} ({n}{})", times(i))).collect();
    if codes.len() > MAX_CODES {
        words.push(format!("{} other codes", codes.len() - MAX_CODES));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        let said = [0, 1, 2].map(|count| format_count(count, "table"));
        assert_eq!(said, ["0 tables", "1 table", "2 tables"]);
    }

    #[test]
    fn codes_are_named_with_the_commonest_first_and_few_of_many() {
        let words = |codes: &[(u16, u64)]| format_error_codes(&codes.iter().copied().collect());
        assert_eq!(words(&[(1205, 3), (1213, 12)]), "1213 (12 times), 1205 (3)");
        assert_eq!(words(&[]), "");
        let many: Vec<(u16, u64)> = (1..=8).map(|n| (1000 + n, u64::from(n))).collect();
        assert!(words(&many).ends_with("1004 (4), 3 other codes"), "{}", words(&many));
    }
}
