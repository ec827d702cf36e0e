//! `bowline`: one binary for every role. Reads the command line and hands over; no rule lives here.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
