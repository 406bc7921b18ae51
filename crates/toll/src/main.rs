//! How is the program started? Everything else is in the library beside this file.

fn main() -> std::process::ExitCode {
    toll::cli::main()
}
