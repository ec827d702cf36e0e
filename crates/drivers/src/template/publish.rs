//! From what is exposed to files in place and everybody notified. Remembers what its check has refused and
//! who has yet to be notified; a failure changes nothing, and the caller comes again.

use super::names::ServerNames;
use super::notify::Notifier;
use super::output::Output;
use super::sift::Sift;
use super::subject::Subject;
use super::{Template, TemplateError, shell};
use crate::Error;
use bowline_core::exposed::view::Told;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Problem, Reason};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most checks to find those that one refuses.
const MOST_CHECKS: usize = 256;
/// The most of what a check says that is told.
const MOST_SAID: usize = 500;

/// A template, where its result goes, and what is asked before it goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The template.
    pub template: PathBuf,
    /// The file that is made of it.
    pub output: PathBuf,
    /// A command that refuses a file by its status; `{}` is the file.
    pub check: Option<String>,
}

/// What came of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The files that are new.
    pub changed: Vec<PathBuf>,
    /// Who is left out, because a check refuses the configuration with it.
    pub refused: Vec<Told>,
}

/// Keeps files in step.
#[derive(Debug)]
pub struct Publisher {
    files: Vec<File>,
    notifiers: Vec<(Notifier, bool)>,
    names: Arc<ServerNames>,
    limit: Duration,
    refused: Vec<Refused>,
}

#[derive(Debug)]
struct File {
    target: Target,
    output: Output,
    template: Template,
}

/// What a check refused, as it was then.
#[derive(Debug)]
struct Refused {
    was: Subject,
    told: Told,
}

impl Publisher {
    /// Reads the templates. Whoever was to be notified when the process before ended is notified first.
    pub fn new(
        targets: Vec<Target>,
        notifiers: Vec<Notifier>,
        names: Arc<ServerNames>,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut files = Vec::new();
        for target in targets {
            let output = Output::new(&target.output).map_err(|error| Error {
                doing: format!("--output {}", target.output.display()),
                cause: error.to_string(),
                retry: false,
            })?;
            let template = Template::read(&target.template, &names).map_err(unreadable)?;
            files.push(File { target, output, template });
        }
        let owes = files.iter().any(|file| file.output.owes());
        let notifiers = notifiers.into_iter().map(|notifier| (notifier, owes)).collect();
        Ok(Self { files, notifiers, names, limit, refused: Vec::new() })
    }

    /// Whether all templates ask which clients may use a Service.
    pub fn knows_source_ranges(&self) -> bool {
        self.files.iter().all(|file| file.template.knows_source_ranges())
    }

    /// Reads the templates again, where they have changed.
    pub fn reread(&mut self) -> Result<(), Error> {
        for file in &mut self.files {
            let again = Template::read(&file.target.template, &self.names).map_err(unreadable)?;
            if again.source != file.template.source {
                file.template = again;
                self.refused.clear();
            }
        }
        Ok(())
    }

    /// Fills the templates, checks and puts in place what is different.
    pub async fn write(&mut self, subject: &Subject) -> Result<Done, Error> {
        self.refused.retain(|r| subject.only(|consumer| *consumer == r.told.consumer) == r.was);
        let kept = self.kept(subject);
        let mut texts = self.render(&kept)?;
        if let Some(why) = self.check(&texts).await? {
            let kept = self.sift(&kept, why).await?;
            texts = self.render(&kept)?;
        }
        let changed = self.place(&texts)?;
        Ok(Done { changed, refused: self.refused.iter().map(|r| r.told.clone()).collect() })
    }

    /// Without those that the check refused before.
    fn kept(&self, subject: &Subject) -> Subject {
        let refused: BTreeSet<_> = self.refused.iter().map(|r| &r.told.consumer).collect();
        if refused.is_empty() {
            return subject.clone();
        }
        subject.only(|consumer| !refused.contains(consumer))
    }

    fn render(&self, subject: &Subject) -> Result<Vec<String>, Error> {
        let data = subject.data();
        let texts = self.files.iter().map(|file| file.template.render(&data));
        texts.map(|text| text.map_err(|error| unreadable(error).again())).collect()
    }

    /// Asks the checks; why the first one refuses. What is in place already is not asked about.
    async fn check(&self, texts: &[String]) -> Result<Option<String>, Error> {
        for (file, text) in self.files.iter().zip(texts) {
            let Some(check) = &file.target.check else { continue };
            if file.output.has(text) {
                continue;
            }
            let staged = file.output.stage(text).map_err(|error| unwritten(file, &error))?;
            let command = check.replace("{}", "\"$1\"");
            let answer = shell::run(&command, Some(staged.as_os_str()), self.limit).await;
            if let Err(why) = answer {
                file.output.discard();
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Finds those that the check refuses, and returns the subject without them.
    async fn sift(&mut self, subject: &Subject, why: String) -> Result<Subject, Error> {
        let refuses = |why: &str| Error {
            doing: "the check of the configuration".to_owned(),
            cause: format!("{why}; what is in place stays"),
            retry: true,
        };
        let nobody = self.render(&subject.only(|_| false))?;
        let consumers = subject.consumers();
        if consumers.is_empty() || self.check(&nobody).await?.is_some() {
            return Err(refuses(&why));
        }
        let (mut sift, mut said) = (Sift::new(consumers.into_iter().collect()), why);
        let mut reasons: Vec<(Vec<ConsumerRef>, String)> = Vec::new();
        let mut checks = 0;
        while let Some(group) = sift.next() {
            checks += 1;
            if checks > MOST_CHECKS {
                return Err(refuses(&said));
            }
            let set: BTreeSet<_> = group.iter().collect();
            let texts = self.render(&subject.only(|consumer| set.contains(consumer)))?;
            let answer = self.check(&texts).await?;
            sift.answer(answer.is_none());
            if let Some(why) = answer {
                said.clone_from(&why);
                reasons.push((group, why));
            }
        }
        let bad = sift.bad();
        for consumer in &bad {
            // The last refusal that has it is of the smallest group.
            let why = reasons.iter().rev().find(|(group, _)| group.contains(consumer));
            let why = why.map_or(said.as_str(), |(_, why)| why.as_str());
            self.refused.push(refused(subject, consumer, why));
        }
        Ok(subject.only(|consumer| !bad.contains(consumer)))
    }

    /// Puts in place what is different.
    fn place(&mut self, texts: &[String]) -> Result<Vec<PathBuf>, Error> {
        let different: Vec<_> =
            self.files.iter().zip(texts).filter(|(file, text)| !file.output.has(text)).collect();
        for (file, text) in &different {
            file.output.stage(text).map_err(|error| unwritten(file, &error))?;
        }
        let mut changed = Vec::new();
        for (file, _) in different {
            let placed = file.output.owe().and_then(|()| file.output.promote());
            placed.map_err(|error| unwritten(file, &error))?;
            self.notifiers.iter_mut().for_each(|(_, owed)| *owed = true);
            changed.push(file.output.path().to_owned());
        }
        Ok(changed)
    }

    /// Whether somebody has to be notified.
    pub fn owes(&self) -> bool {
        self.notifiers.iter().any(|(_, owed)| *owed)
    }

    /// Notifies those who have to be; says of each what came of it. Those that fail stay owed.
    pub async fn notify(&mut self) -> Vec<(Notifier, Result<String, String>)> {
        let mut told = Vec::new();
        for (notifier, owed) in self.notifiers.iter_mut().filter(|(_, owed)| *owed) {
            let came = notifier.notify(self.limit).await;
            *owed = came.is_err();
            told.push((notifier.clone(), came));
        }
        if !self.owes() {
            for file in &self.files {
                if let Err(error) = file.output.settle() {
                    tracing::warn!(output = %file.output.path().display(), %error, "cannot settle");
                }
            }
        }
        told
    }
}

fn refused(subject: &Subject, consumer: &ConsumerRef, why: &str) -> Refused {
    let why: String = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let why: String = why.chars().take(MOST_SAID).collect();
    let message = format!("the configuration with it is refused, so it is left out: {why}");
    Refused {
        was: subject.only(|one| one == consumer),
        told: Told {
            consumer: consumer.clone(),
            problem: Problem::new(Reason::RefusedByCheck, message),
        },
    }
}

fn unreadable(error: TemplateError) -> Error {
    Error { doing: "template".to_owned(), cause: error.to_string(), retry: false }
}

fn unwritten(file: &File, error: &std::io::Error) -> Error {
    Error {
        doing: format!("writing {}", file.output.path().display()),
        cause: error.to_string(),
        retry: true,
    }
}

impl Error {
    fn again(self) -> Self {
        Self { retry: true, ..self }
    }
}
