//! Entry point of the program. Everything else is in the library beside this file.

fn main() -> std::process::ExitCode {
    toll::cli::main()
}
