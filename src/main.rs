//! `bowline`: one binary for every role. It passes the command line to `cli` and decides nothing
//! itself.

mod cli;
#[cfg(feature = "apiserver")]
mod demo;
#[cfg(feature = "apiserver")]
mod running;
mod view;
mod visible;

/// The proxy allocates and frees a few dozen times per request, on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
