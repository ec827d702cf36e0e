//! `bowline crds`: prints the CustomResourceDefinitions that a cluster needs before it can hold
//! Bowline's objects.

use super::look;
use super::say::say;
use anyhow::Context as _;
use std::path::PathBuf;

/// Print the CustomResourceDefinitions of Bowline's kinds, ready for `kubectl apply -f -`.
#[derive(Debug, clap::Args)]
pub(super) struct Crds {
    /// Write one file per kind into this folder instead
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Crds {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Some(dir) = self.dir else {
            return look::write(bowline_api::crds::yaml());
        };
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        for (name, text) in bowline_api::crds::files() {
            let file = dir.join(name);
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
            say(file.display());
        }
        Ok(())
    }
}
