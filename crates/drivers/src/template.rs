//! Any load balancer with a configuration file: the module fills a template with what the cluster exposes, checks the
//! result, replaces the file atomically, and notifies a program. It owns rendering, files and notifiers, and never
//! watches anything. The runtime's template role calls it; for one load balancer, the agent does.
//!
//! ```text
//!  Cluster ─▶ data ─▶ go | jinja ─▶ check ─▶ output (beside, fsync, rename) ─▶ notify
//!                                    └▶ sift: which object is refused, so that the rest goes live
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

/// Why a template was not read or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TemplateError {
    /// The template.
    pub file: PathBuf,
    /// The line, where it is known.
    pub line: Option<usize>,
    /// The expression that was being evaluated. Empty: the template could not be read at all.
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

/// A template, read and parsed.
#[derive(Debug)]
pub struct Template {
    source: String,
    engine: Engine,
    /// The words that it uses, to find out which fields it reads.
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

    /// Parses this text as the template `file`.
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

    /// Which optional settings the template reads. Consumers that need one that it does not read cannot be served.
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

    /// Renders the template.
    pub fn render(&self, data: &Data) -> Result<String, TemplateError> {
        match &self.engine {
            Engine::Go(go) => go.render(&go::value(data)),
            Engine::Jinja(jinja) => jinja.render(data),
        }
    }
}

#[cfg(test)]
mod tests;
