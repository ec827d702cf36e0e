//! Any load balancer with a configuration file: a template is filled with what the cluster exposes, the
//! result is checked and put in place whole, and somebody is notified. Owns rendering, files and
//! notifiers; it never watches anything. The runtime's template role calls it, and, for one load balancer,
//! the agent.
//!
//! ```text
//!  Cluster ─▶ data ─▶ go | jinja ─▶ check ─▶ output (beside, fsync, rename) ─▶ notify
//!                                    └▶ sift: who is refused, so that the rest goes live
//! ```

mod blocks;
mod certificates;
pub mod data;
mod driver;
mod go;
mod jinja;
pub mod names;
pub mod notify;
mod output;
mod publish;
mod readmit;
mod shell;
mod subject;
mod words;

pub use certificates::Certificates;
pub use driver::Templates;
pub use names::ServerNames;
pub use notify::{BadNotifier, Notifier};
pub use publish::{Done, Publisher, Target};
pub use subject::{Knows, Subject};

use data::Data;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a template gave no file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TemplateError {
    /// Of which template.
    pub file: PathBuf,
    /// The line, where it is known.
    pub line: Option<usize>,
    /// What was being evaluated; empty: it could not be read at all.
    pub evaluating: String,
    /// What went wrong.
    pub cause: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.evaluating.is_empty() {
            write!(f, ": evaluating {}", self.evaluating)?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// A template that was read.
#[derive(Debug)]
pub struct Template {
    source: String,
    engine: Engine,
    /// The words that it asks with.
    words: BTreeSet<String>,
}

#[derive(Debug)]
enum Engine {
    Go(go::Go),
    Jinja(jinja::Jinja),
}

impl Template {
    /// Reads a template file: `.j2` is Jinja, everything else a Go template.
    pub fn read(file: &Path, names: &Arc<ServerNames>) -> Result<Self, TemplateError> {
        let source = std::fs::read_to_string(file).map_err(|error| TemplateError {
            file: file.to_owned(),
            line: None,
            evaluating: String::new(),
            cause: error.to_string(),
        })?;
        Self::new(file, source, names)
    }

    /// A template of this text.
    pub fn new(
        file: &Path,
        source: String,
        names: &Arc<ServerNames>,
    ) -> Result<Self, TemplateError> {
        let (engine, words) = if file.extension().is_some_and(|ext| ext == "j2") {
            let jinja = jinja::Jinja::new(file, &source, names)?;
            (Engine::Jinja(jinja), words::of_jinja(&source))
        } else {
            let mut go = go::Go::new(file, &source, Some(names))?;
            let words = std::mem::take(&mut go.words);
            (Engine::Go(go), words)
        };
        Ok(Self { source, engine, words })
    }

    /// What it asks for of that which a load balancer must know of to serve as it is asked.
    pub fn knows(&self) -> Knows {
        let asks = |word: &str| self.words.contains(word);
        Knows {
            source_ranges: asks("SourceRanges") || asks("sourceRanges"),
            tls: asks("tls"),
            persistence: asks("persistence"),
            proxy_protocol: asks("proxyProtocol"),
            snat: asks("snat"),
        }
    }

    /// Fills it.
    pub fn render(&self, data: &Data) -> Result<String, TemplateError> {
        match &self.engine {
            Engine::Go(go) => go.render(&go::value(data)),
            Engine::Jinja(jinja) => jinja.render(data),
        }
    }
}

#[cfg(test)]
mod tests;
