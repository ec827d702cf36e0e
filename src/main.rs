//! `bowline`: one binary for every role. Reads the command line and hands over; no rule lives here.

mod cli;
mod demo;
mod running;
mod view;
mod visible;

fn main() -> std::process::ExitCode {
    cli::run()
}
