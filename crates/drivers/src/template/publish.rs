//! Renders templates, checks the results, installs the files and runs notifiers. Remembers what was refused, when to
//! try it again, and which notifiers must still run. A failure changes nothing, and the caller tries again. The
//! template role and the driver call it.
//!
//! ```text
//!  all but those refused before ─▶ accepted ─▶ new: installed
//!                                │            └▶ installed already: refused ones that are due, one at a time
//!                                └▶ refused: sift, and the accepted ones are installed
//! ```

use super::names::ServerNames;
use super::notify::Notifier;
use super::output::Output;
use super::readmit::Readmission;
use super::shell::{self, Failed};
use super::subject::{Knows, Subject};
use super::{Template, TemplateError};
use crate::Error;
use crate::sift::Sift;
use bowline_core::exposed::view::Told;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Problem, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most tries in one write to find refused consumers.
const MOST_TRIES: usize = 256;
/// The most characters of a check's output in a report.
const MOST_SAID: usize = 500;

/// A template, its output file, and the check before the file is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The template.
    pub template: PathBuf,
    /// The output file.
    pub output: PathBuf,
    /// A command that refuses a file by its exit status; `{}` is the file.
    pub check: Option<String>,
}

/// The result of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The files that have changed.
    pub changed: Vec<PathBuf>,
    /// The consumers that are left out, because a template or a check refuses them.
    pub refused: Vec<Told>,
    /// When to call again, even if nothing changes.
    pub again: Option<Instant>,
}

/// Keeps the output files in step.
#[derive(Debug)]
pub struct Publisher {
    files: Vec<File>,
    notifiers: Vec<(Notifier, bool)>,
    names: Arc<ServerNames>,
    pub(super) limit: Duration,
    refused: Vec<Refused>,
    /// The most tries in one write.
    pub(super) most_tries: usize,
}

#[derive(Debug)]
struct File {
    target: Target,
    output: Output,
    template: Arc<Template>,
}

/// A refused consumer, with its input at that time.
#[derive(Debug)]
struct Refused {
    was: Subject,
    told: Told,
    readmission: Readmission,
}

/// Why a configuration is refused.
#[derive(Clone, Debug)]
struct Why {
    reason: Reason,
    said: String,
}

type Texts = Vec<Arc<str>>;

impl Publisher {
    /// Reads the templates. If the last process ended before it ran all notifiers, the first `notify` runs them.
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
            let template = Arc::new(Template::read(&target.template, &names).map_err(unreadable)?);
            files.push(File { target, output, template });
        }
        let owes = files.iter().any(|file| file.output.owes());
        let notifiers = notifiers.into_iter().map(|notifier| (notifier, owes)).collect();
        Ok(Self { files, notifiers, names, limit, refused: Vec::new(), most_tries: MOST_TRIES })
    }

    /// The optional settings that all templates read.
    pub fn knows(&self) -> Knows {
        let knows = self.files.iter().map(|file| file.template.knows());
        knows.reduce(Knows::and).unwrap_or_default()
    }

    /// The texts of the output files that exist.
    pub fn in_place(&self) -> Vec<String> {
        self.files.iter().filter_map(|file| file.output.text()).collect()
    }

    /// The holders of ports and names that the last process stored beside the first file. None: there are none.
    pub fn holders(&self) -> Result<Option<String>, Error> {
        let Some(file) = self.files.first() else { return Ok(None) };
        file.output.holders().map_err(|error| Error {
            doing: format!("reading the holders beside {}", file.output.path().display()),
            cause: error.to_string(),
            retry: false,
        })
    }

    /// Stores the holders of ports and names beside the first file, for the next process.
    pub async fn keep_holders(&self, text: String) -> Result<(), Error> {
        let Some(file) = self.files.first() else { return Ok(()) };
        let output = file.output.clone();
        blocking(move || output.keep_holders(&text)).await?.map_err(|error| Error {
            doing: format!("keeping the holders beside {}", file.output.path().display()),
            cause: error.to_string(),
            retry: true,
        })
    }

    /// Reads the templates again, in case they have changed.
    pub fn reread(&mut self) -> Result<(), Error> {
        for file in &mut self.files {
            let again = Template::read(&file.target.template, &self.names).map_err(unreadable)?;
            if again.source != file.template.source {
                file.template = Arc::new(again);
                self.refused.clear();
            }
        }
        Ok(())
    }

    /// The rendered texts, without a check. None: a template fails.
    pub async fn filled(&self, subject: &Subject) -> Option<Vec<String>> {
        let texts = self.fill(subject).await.ok()?.ok()?;
        Some(texts.iter().map(|text| text.to_string()).collect())
    }

    async fn fill(&self, subject: &Subject) -> Result<Result<Texts, TemplateError>, Error> {
        let templates: Vec<_> = self.files.iter().map(|file| file.template.clone()).collect();
        let subject = subject.clone();
        let filled = blocking(move || {
            let data = subject.data();
            let texts = templates.iter().map(|template| template.render(&data));
            texts.map(|text| text.map(Arc::from)).collect()
        });
        filled.await
    }

    /// Renders the templates, checks the results, and installs those that differ.
    pub async fn write(&mut self, subject: &Subject, now: Instant) -> Result<Done, Error> {
        self.recall(subject);
        let kept = self.kept(subject);
        let mut tries = self.most_tries;
        let (texts, untried) = match self.attempt(&kept).await? {
            Ok(texts) if self.has(&texts) => {
                (self.readmit(subject, texts, now, tries).await?, None)
            }
            Ok(texts) => (texts, None),
            Err(why) => self.sift(&kept, why, now, &mut tries).await?,
        };
        let changed = self.place(&texts).await?;
        let refused = self.refused.iter().map(|refused| refused.told.clone());
        let again = self.refused.iter().map(|refused| refused.readmission.due());
        let again = if untried.is_some() { Some(now) } else { again.min() };
        let refused = refused.chain(untried.into_iter().flatten()).collect();
        Ok(Done { changed, refused, again })
    }

    /// Forgets refused consumers that are gone, and notes which ones have changed.
    fn recall(&mut self, subject: &Subject) {
        let all = subject.consumers();
        self.refused.retain(|refused| all.contains(&refused.told.consumer));
        for refused in &mut self.refused {
            let is = subject.only(|consumer| *consumer == refused.told.consumer);
            if is != refused.was {
                refused.was = is;
                refused.readmission.changed();
            }
        }
    }

    /// The input without the consumers that were refused before.
    fn kept(&self, subject: &Subject) -> Subject {
        let refused: BTreeSet<_> = self.refused.iter().map(|r| &r.told.consumer).collect();
        if refused.is_empty() {
            return subject.clone();
        }
        subject.only(|consumer| !refused.contains(consumer))
    }

    fn has(&self, texts: &Texts) -> bool {
        self.files.iter().zip(texts).all(|(file, text)| file.output.has(text))
    }

    /// Renders the templates and runs the checks, except for a text that is installed already. An outer error: a check
    /// has given no answer.
    async fn attempt(&self, subject: &Subject) -> Result<Result<Texts, Why>, Error> {
        let texts = match self.fill(subject).await? {
            Ok(texts) => texts,
            Err(error) => {
                return Ok(Err(Why { reason: Reason::TemplateFailed, said: error.to_string() }));
            }
        };
        for (file, text) in self.files.iter().zip(&texts) {
            let Some(check) = &file.target.check else { continue };
            if file.output.has(text) {
                continue;
            }
            let staged = file.stage(text).await?;
            let command = check.replace("{}", "\"$1\"");
            match shell::run(&command, Some(staged.as_os_str()), self.limit).await {
                Ok(_) => {}
                Err(Failed::Refused(said)) => {
                    file.output.discard();
                    return Ok(Err(Why { reason: Reason::RefusedByCheck, said }));
                }
                Err(Failed::Unanswered(why)) => {
                    file.output.discard();
                    return Err(Error {
                        doing: "asking the check of the configuration".to_owned(),
                        cause: format!("{why}; the files in place stay"),
                        retry: true,
                    });
                }
            }
        }
        Ok(Ok(texts))
    }

    /// Finds the refused consumers within `tries`. Returns the texts for the accepted ones, and the reports for
    /// consumers that were not tried.
    async fn sift(
        &mut self,
        subject: &Subject,
        why: Why,
        now: Instant,
        tries: &mut usize,
    ) -> Result<(Texts, Option<Vec<Told>>), Error> {
        let consumers = subject.consumers();
        if consumers.is_empty() || self.attempt(&subject.only(|_| false)).await?.is_err() {
            return Err(why.stays());
        }
        let mut sift = Sift::new(consumers.into_iter().collect());
        let mut reasons: BTreeMap<ConsumerRef, Why> = BTreeMap::new();
        while let Some(group) = sift.next() {
            if *tries == 0 {
                break;
            }
            *tries -= 1;
            let set: BTreeSet<_> = group.iter().collect();
            let came = self.attempt(&subject.only(|consumer| set.contains(consumer))).await?;
            sift.answer(came.is_ok());
            if let Err(why) = came {
                // The last refusal of a consumer is that of its smallest group.
                reasons.extend(group.into_iter().map(|consumer| (consumer, why.clone())));
            }
        }
        let known = sift.known();
        let fails = |why: &&Why| why.reason == Reason::TemplateFailed;
        let template = reasons.values().find(fails).or(Some(&why).filter(fails));
        if known.good.is_empty()
            && let Some(why) = template
        {
            // If every consumer fails, the template is wrong.
            return Err(why.clone().stays());
        }
        for consumer in &known.bad {
            let why = reasons.get(consumer).unwrap_or(&why).clone();
            let refused = self.refuse(subject, consumer, why, now, tries).await?;
            self.refused.push(refused);
        }
        if known.good.is_empty() && !known.untried.is_empty() {
            return Err(why.stays());
        }
        let good: BTreeSet<_> = known.good.iter().collect();
        let texts = self.attempt(&subject.only(|consumer| good.contains(consumer))).await?;
        let texts = texts.map_err(Why::stays)?;
        let message = "the configuration with this object and others is refused; the object is left out until \
            it is known which one is refused";
        let untried = known.untried.into_iter().map(|consumer| Told {
            consumer,
            problem: Problem::new(Reason::RefusedByCheck, message),
        });
        let untried: Vec<_> = untried.collect();
        Ok((texts, (!untried.is_empty()).then_some(untried)))
    }

    /// Makes the entry and report for a refused consumer. A check's output may quote texts of other consumers, so it is
    /// reported only if this one was tried alone.
    async fn refuse(
        &self,
        subject: &Subject,
        consumer: &ConsumerRef,
        why: Why,
        now: Instant,
        tries: &mut usize,
    ) -> Result<Refused, Error> {
        let was = subject.only(|one| one == consumer);
        let mut alone = None;
        if *tries > 0 {
            *tries -= 1;
            alone = self.attempt(&was).await?.err();
        }
        tracing::warn!(object = %consumer, said = why.said, "refused and left out");
        let told =
            Told { consumer: consumer.clone(), problem: problem(why.reason, alone.as_ref()) };
        Ok(Refused { was, told, readmission: Readmission::new(now) })
    }

    /// Tries refused consumers that are due, each together with all accepted ones. Returns the texts for all that are
    /// then accepted.
    async fn readmit(
        &mut self,
        subject: &Subject,
        mut texts: Texts,
        now: Instant,
        tries: usize,
    ) -> Result<Texts, Error> {
        let due = self.refused.iter().filter(|refused| refused.readmission.due() <= now);
        let due: Vec<_> = due.map(|refused| refused.told.consumer.clone()).take(tries).collect();
        for consumer in due {
            let out = |one: &ConsumerRef| *one != consumer && self.is_refused(one);
            match self.attempt(&subject.only(|one| !out(one))).await? {
                Ok(with_it) => {
                    tracing::info!(object = %consumer, "no longer refused");
                    self.refused.retain(|refused| refused.told.consumer != consumer);
                    texts = with_it;
                }
                Err(why) => {
                    let mut one_more = 1;
                    let again = self.refuse(subject, &consumer, why, now, &mut one_more).await?;
                    let mut of_it =
                        self.refused.iter_mut().filter(|refused| refused.told.consumer == consumer);
                    if let Some(refused) = of_it.next() {
                        refused.told = again.told;
                        refused.readmission.refused(now);
                    }
                }
            }
        }
        Ok(texts)
    }

    fn is_refused(&self, consumer: &ConsumerRef) -> bool {
        self.refused.iter().any(|refused| refused.told.consumer == *consumer)
    }

    /// Installs the texts that differ.
    async fn place(&mut self, texts: &Texts) -> Result<Vec<PathBuf>, Error> {
        let different: Vec<_> =
            self.files.iter().zip(texts).filter(|(file, text)| !file.output.has(text)).collect();
        for (file, text) in &different {
            file.stage(text).await?;
        }
        let mut changed = Vec::new();
        for (file, text) in different {
            let (output, owes) = (file.output.clone(), !self.notifiers.is_empty());
            let placed = blocking(move || {
                if owes {
                    output.owe()?;
                }
                output.promote()
            });
            let placed = placed.await?;
            // The new file may be in place even if the sync has failed.
            if placed.is_ok() || file.output.has(text) {
                self.notifiers.iter_mut().for_each(|(_, owed)| *owed = true);
            }
            placed.map_err(|error| unwritten(file, &error))?;
            changed.push(file.output.path().to_owned());
        }
        Ok(changed)
    }

    /// Whether a notifier must run.
    pub fn owes(&self) -> bool {
        self.notifiers.iter().any(|(_, owed)| *owed)
    }

    /// Runs the notifiers that must run, and returns the result of each. A failed one must run again.
    pub async fn notify(&mut self) -> Vec<(Notifier, Result<String, String>)> {
        let mut told = Vec::new();
        for (notifier, owed) in self.notifiers.iter_mut().filter(|(_, owed)| *owed) {
            let came = notifier.notify(self.limit).await;
            *owed = came.is_err();
            told.push((notifier.clone(), came));
        }
        if !self.owes() && !told.is_empty() {
            for file in &self.files {
                if let Err(error) = file.output.settle() {
                    tracing::warn!(
                        output = %file.output.path().display(),
                        %error,
                        "cannot record that all notifiers were told"
                    );
                }
            }
        }
        told
    }
}

impl File {
    async fn stage(&self, text: &Arc<str>) -> Result<PathBuf, Error> {
        let (output, text) = (self.output.clone(), text.clone());
        let staged = blocking(move || output.stage(&text)).await?;
        staged.map_err(|error| unwritten(self, &error))
    }
}

impl Why {
    /// The error that nothing new can be installed.
    fn stays(self) -> Error {
        let doing = match self.reason {
            Reason::TemplateFailed => "template",
            _ => "the check of the configuration",
        };
        let cause = format!("{}; the files in place stay", self.said);
        Error { doing: doing.to_owned(), cause, retry: true }
    }
}

/// The report for a refused consumer, with the output of its own check.
fn problem(reason: Reason, alone: Option<&Why>) -> Problem {
    let Some(Why { reason, said }) = alone else {
        let message = "the configuration with this object and others is refused, so the object is left out; the \
            agent's log has the output of the check";
        return Problem::new(reason, message);
    };
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: String = said.chars().take(MOST_SAID).collect();
    let message = match reason {
        Reason::TemplateFailed => "a template cannot be filled with this object, so it is left out",
        _ => "the configuration with this object is refused, so it is left out",
    };
    Problem::new(*reason, format!("{message}: {said}"))
}

/// Runs blocking work: slow templates, and disks.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error {
        doing: "filling templates".to_owned(),
        cause: error.to_string(),
        retry: true,
    })
}

fn unreadable(error: TemplateError) -> Error {
    Error { doing: "template".to_owned(), cause: error.to_string(), retry: true }
}

fn unwritten(file: &File, error: &std::io::Error) -> Error {
    Error {
        doing: format!("writing {}", file.output.path().display()),
        cause: error.to_string(),
        retry: true,
    }
}
