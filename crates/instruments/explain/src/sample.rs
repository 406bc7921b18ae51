//! Choice of samples that may be explained. Refuses whatever may do more than read, and names the reason.

use toll_digest::classes::{Class, Digest};
use toll_mysql::placeholder::{split_at_placeholders, substitute_params};
use toll_wire::event::CommandKind;

/// A statement for EXPLAIN.
#[derive(Debug, PartialEq, Eq)]
pub struct Explainable {
    /// Schema to use; `None`: the sample knows none.
    pub db: Option<String>,
    pub text: String,
}

/// Words that lock, write, wait, or change what others see, even inside an EXPLAIN.
const REFUSED_WORDS: [(&str, &str); 13] = [
    ("into", "it writes its result (INTO)"),
    ("sleep", "it calls SLEEP"),
    ("benchmark", "it calls BENCHMARK"),
    ("get_lock", "it takes a lock (GET_LOCK)"),
    ("release_lock", "it releases a lock"),
    ("release_all_locks", "it releases locks"),
    ("nextval", "it advances a sequence"),
    ("setval", "it sets a sequence"),
    ("load_file", "it reads a file of the server"),
    ("master_pos_wait", "it waits for replication"),
    ("source_pos_wait", "it waits for replication"),
    ("master_gtid_wait", "it waits for replication"),
    ("wait_for_executed_gtid_set", "it waits for replication"),
];
/// The same for words in a row.
const REFUSED_PHRASES: [(&[&str], &str); 4] = [
    (&["for", "update"], "it locks rows (FOR UPDATE)"),
    (&["for", "share"], "it locks rows (FOR SHARE)"),
    (&["lock", "in", "share", "mode"], "it locks rows (LOCK IN SHARE MODE)"),
    (&["next", "value", "for"], "it advances a sequence"),
];

/// # Errors
/// Why the class has no statement to explain.
pub fn find_explainable(digest: &Digest, class: &Class) -> Result<Explainable, &'static str> {
    match class.kind {
        CommandKind::Query | CommandKind::Execute => {}
        CommandKind::Prepare => return Err("it only prepares a statement: see the class of its executions"),
        CommandKind::Close | CommandKind::Reset | CommandKind::Admin => return Err("it is no statement"),
    }
    let Some(sample) = &class.sample else {
        return Err("there is no sample: a stored digest has samples if it was written with --literals");
    };
    if sample.is_cut {
        return Err("its sample is longer than 4 KiB, and was cut");
    }
    let text = std::str::from_utf8(&sample.text).map_err(|_| "its sample is not UTF-8")?;
    check_select(text)?;
    let text = if class.kind == CommandKind::Execute && split_at_placeholders(text).len() > 1 {
        let params = std::str::from_utf8(&sample.params).map_err(|_| "its values are not UTF-8")?;
        substitute_params(text, params).ok_or("not all values of the prepared statement are known")?
    } else {
        text.to_owned()
    };
    let named = Some(sample.db.as_slice()).filter(|db| !db.is_empty());
    let db = named.or_else(|| class.dbs.by_count().first().map(|(id, _)| digest.name(*id)));
    let db = db.map(|db| String::from_utf8_lossy(db).into_owned());
    Ok(Explainable { db, text })
}

fn check_select(text: &str) -> Result<(), &'static str> {
    let words = split_words(text)?;
    if words.first().is_none_or(|word| word != "select") {
        return Err("it is no SELECT");
    }
    let of_word = REFUSED_WORDS.iter().find(|(word, _)| words.iter().any(|one| one == word));
    let of_phrase = REFUSED_PHRASES.iter().find(|(phrase, _)| {
        words.windows(phrase.len()).any(|row| row.iter().zip(*phrase).all(|(word, of)| word == of))
    });
    let reason = of_word.map(|(_, reason)| *reason).or(of_phrase.map(|(_, reason)| *reason));
    reason.map_or(Ok(()), Err)
}

/// Words outside of strings and comments, in lower case. Quoted names are words, too.
fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let is_comment = rest.starts_with("/*") || is_dash_comment(rest) || rest.starts_with('#');
        if is_comment || matches!(char, '\'' | '"') || !(char.is_alphanumeric() || char == '_') {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.extend(char.to_lowercase());
        }
        let length = if rest.starts_with("/*") {
            if rest.starts_with("/*!") || rest.starts_with("/*M!") {
                return Err("it has code in a comment (/*! */)");
            }
            rest.find("*/").ok_or("it has a comment without an end")? + 2
        } else if is_comment {
            rest.find('\n').map_or(rest.len(), |end| end + 1)
        } else if matches!(char, '\'' | '"') {
            string_length(rest, char).ok_or("it has a string without an end")?
        } else {
            char.len_utf8()
        };
        rest = &rest[length..];
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Two dashes alone are arithmetic.
fn is_dash_comment(text: &str) -> bool {
    let after = text.strip_prefix("--");
    after.is_some_and(|after| after.is_empty() || after.starts_with(|char: char| char.is_whitespace()))
}

/// Bytes of a string with its quotes.
fn string_length(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if char == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_digest::classes::Settings;
    use toll_wire::event::{Event, Sink};

    fn explainable(event: Event<'_>) -> Result<Explainable, &'static str> {
        let mut digest = Digest::new(Settings { keep_samples: true, ..Settings::default() });
        digest.on_event(&event);
        find_explainable(&digest, &digest.classes()[0])
    }

    fn of(text: &str) -> Result<Explainable, &'static str> {
        explainable(Event { text: text.as_bytes(), ..Event::default() })
    }

    #[test]
    fn selects_are_explained_in_their_schema_with_their_values() {
        let event = Event {
            text: b"select * from t where a = ? and b = '?'",
            params: b"'x,y'",
            kind: CommandKind::Execute,
            db: b"shop",
            ..Event::default()
        };
        let text = "select * from t where a = 'x,y' and b = '?'".to_owned();
        assert_eq!(explainable(event), Ok(Explainable { db: Some("shop".into()), text }));
        for text in [
            " /* a */ ( SELECT 1 ) union (select 2)",
            "select 'into', \"for update\", a -- into\n from t # sleep",
            "SELECT `date`, 'it''s', 'a\\'b into' FROM t /*app='x'*/",
        ] {
            assert_eq!(of(text), Ok(Explainable { db: None, text: text.to_owned() }), "{text}");
        }
    }

    #[test]
    fn whatever_may_do_more_than_read_is_refused_with_its_reason() {
        for (text, reason) in [
            ("update t set a = 1", "no SELECT"),
            ("with c as (select 1) delete from t", "no SELECT"),
            ("selection", "no SELECT"),
            ("", "no SELECT"),
            ("select * from t FOR  Update", "locks rows"),
            ("select * from t lock in /* x */ share mode", "locks rows"),
            ("select a from t for share", "locks rows"),
            ("select 1 into outfile '/tmp/x'", "INTO"),
            ("select 5--1 into @a", "INTO"),
            ("select sleep(10)", "SLEEP"),
            ("select get_lock('a', 1)", "GET_LOCK"),
            ("select next value for s", "sequence"),
            ("select /*!50000 1 into @a */", "code in a comment"),
            ("select 1 /*M! into @a */", "code in a comment"),
            ("select 'abc", "without an end"),
            ("select 1 /* abc", "without an end"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let cut = "select 'x".to_owned() + &"x".repeat(5_000) + "'";
        assert!(of(&cut).unwrap_err().contains("4 KiB"));
        let values =
            Event { text: b"select ?, ?", params: b"1", kind: CommandKind::Execute, ..Event::default() };
        assert!(explainable(values).unwrap_err().contains("values"));
    }
}
