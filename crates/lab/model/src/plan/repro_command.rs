//! Command line that repeats a run.

use toll_sys::redact;

/// The command's words with the run's seed. The directory is left out, because it exists by then.
///
/// Options after `--` belong to the command that is priced and are not touched. Secrets become `***`.
pub fn build_repro_command(command: &[String], seed: u64) -> Vec<String> {
    let end = command.iter().position(|word| word == "--").unwrap_or(command.len());
    let (ours, theirs) = command.split_at(end);
    let mut words: Vec<String> = Vec::with_capacity(command.len() + 2);
    let mut skip = false;
    for word in ours {
        if std::mem::take(&mut skip) {
            continue;
        }
        if word == "--out" || word == "--seed" {
            skip = true;
        } else if !word.starts_with("--out=") && !word.starts_with("--seed=") {
            words.push(word.clone());
        }
    }
    words.extend(["--seed".to_owned(), seed.to_string()]);
    words.extend_from_slice(theirs);
    redact::redact_words(&words)
}

#[cfg(test)]
mod tests {
    use super::build_repro_command;

    #[test]
    fn a_repeated_run_has_the_seed_of_the_first_and_a_directory_of_its_own() {
        for (given, expected) in [
            ("toll run x --out r --rounds 6", "toll run x --rounds 6 --seed 7"),
            ("toll run --seed=3 --out=r x", "toll run x --seed 7"),
            ("toll cost --out r --seed 3 -- tar --out y", "toll cost --seed 7 -- tar --out y"),
            ("toll cost -- mysqldump -phunter2", "toll cost --seed 7 -- mysqldump -p***"),
        ] {
            let words: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(build_repro_command(&words, 7).join(" "), expected);
        }
    }
}
