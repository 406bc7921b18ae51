//! toll: what does it cost to watch, log, move or back up a busy MySQL or MariaDB host?

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
