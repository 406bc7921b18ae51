//! Exit codes of the program, the same for every subcommand. The page `reference/exit-codes.md` is made from this file.

/// It could not begin or go on.
pub const FAILED: u8 = 1;
/// Wrong arguments; clap exits with it, too.
pub const USAGE: u8 = 2;
/// Done, and there is something to look at.
pub const ATTENTION: u8 = 3;
/// Ended by a signal before it was done.
pub const INTERRUPTED: u8 = 130;

/// Every code, with its meaning for any subcommand.
pub const MEANINGS: [(u8, &str); 5] = [
    (0, "Done."),
    (FAILED, "Failed: the message says what failed, why, and what to do."),
    (USAGE, "Wrong arguments. Nothing was started."),
    (
        ATTENTION,
        "Done, but not as it should be: a bound is exceeded, a backup differs, or there is a warning.",
    ),
    (INTERRUPTED, "Interrupted by a signal. Changes are undone."),
];

/// Subcommands for which a code means something more.
pub const BY_COMMAND: &[(&str, u8, &str)] = &[
    ("run", ATTENTION, "A bound of `--fail-if` is exceeded."),
    ("cost", ATTENTION, "A bound of `--fail-if` is exceeded."),
    ("report", ATTENTION, "A bound of `--fail-if` is exceeded."),
    ("doctor", FAILED, "This host is not ready for measurements."),
    ("clean", FAILED, "Some changes could not be undone."),
    ("capture", 0, "Also after Ctrl-C or TERM: the file is complete."),
    ("load", 0, "Also after Ctrl-C or TERM: the totals are printed."),
    ("receive", 0, "Also after Ctrl-C or TERM."),
    ("receive", FAILED, "It could not listen; with `--once`: the stream is incomplete."),
    ("replay", FAILED, "The packets could not be sent, or not at this rate (`--allow-slower`: 0)."),
    ("server status", FAILED, "There is no background server."),
    ("backup", 0, "There may be notes: tables without snapshots, FLOAT columns, limits of the options."),
    (
        "backup",
        FAILED,
        "There is no new backup in the store. A commit in git may exist, since it comes first. If only temporary files \
         could not be removed, the error says that the backup is complete.",
    ),
    (
        "backup",
        ATTENTION,
        "The backup is stored, and there is a warning: something is missing in it, a row cannot be restored, stored data \
         was damaged, old backups could not be removed, or some are dated in the future.",
    ),
    ("backup", INTERRUPTED, "There is no new backup in the store."),
    ("backup verify", FAILED, "The backup could not be checked; with `--stored-only`: it is damaged."),
    ("backup verify", ATTENTION, "The backup differs from what was dumped."),
    (
        "throttle",
        0,
        "The exit code is that of the dump command: 128 and the signal's number if a signal ended it.",
    ),
    ("throttle", FAILED, "The throttle itself failed. The dump may be complete: it then ran unthrottled."),
];
