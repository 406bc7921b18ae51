//! How many of something, in words?
//!
//! Never spells a number out, and knows no noun whose plural is more than an `s`.

/// `1 table`, `2 tables`.
pub fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        let said = [0, 1, 2].map(|count| counted(count, "table"));
        assert_eq!(said, ["0 tables", "1 table", "2 tables"]);
    }
}
