//! Jinja templates, by `minijinja`, with the same data and functions as Go templates. An undefined value is an error,
//! never an empty place in a configuration. The parent module calls it.

use super::data::{Data, STRING};
use super::names::ServerNames;
use super::{TemplateError, go};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, Rest};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A Jinja template.
#[derive(Debug)]
pub(super) struct Jinja {
    file: PathBuf,
    source: String,
    environment: Environment<'static>,
}

const ROOT: &str = "root";

impl Jinja {
    pub(super) fn new(
        file: &Path,
        source: &str,
        names: &Arc<ServerNames>,
    ) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        // A configuration file ends with the end of a line.
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
        environment.set_syntax(syntax.map_err(|error| TemplateError {
            file: file.to_owned(),
            line: None,
            evaluating: String::new(),
            cause: error.to_string(),
        })?);
        functions(&mut environment, names.clone());
        let mut this = Self { file: file.to_owned(), source: source.to_owned(), environment };
        let read = this.environment.add_template_owned(ROOT, source.to_owned());
        read.map_err(|error| this.error(&error))?;
        Ok(this)
    }

    pub(super) fn render(&self, data: &Data) -> Result<String, TemplateError> {
        let template = self.environment.get_template(ROOT);
        let rendered = template.and_then(|template| template.render(value(data)));
        rendered.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &Error) -> TemplateError {
        let line = error.line();
        let text = line.and_then(|line| self.source.lines().nth(line.saturating_sub(1)));
        let cause = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        let evaluating = text.unwrap_or_default().trim().to_owned();
        TemplateError { file: self.file.clone(), line, evaluating, cause }
    }
}

fn functions(environment: &mut Environment<'static>, names: Arc<ServerNames>) {
    let text = |value: Value| value.to_string();
    environment.add_function("EscapeNode", move |v: Value| text(v).replace(['.', ':'], "_"));
    environment.add_function("ToLower", move |v: Value| text(v).to_lowercase());
    environment.add_function("ToUpper", move |v: Value| text(v).to_uppercase());
    environment.add_function("Add", |numbers: Rest<i64>| {
        numbers.iter().try_fold(0i64, |sum, number| sum.checked_add(*number)).ok_or_else(too_large)
    });
    environment.add_function("IntRange", |n: i64, initial: i64, step: i64| {
        go::int_range(n, initial, step).ok_or_else(too_large)
    });
    environment.add_function("ServerNames", move |service: Value, domain: String| {
        let Some(service) = service.downcast_object_ref::<Fields>() else {
            let why = "ServerNames takes a Service and a domain";
            return Err(Error::new(ErrorKind::InvalidOperation, why));
        };
        let service = go::value(&Data::Fields(service.0.clone()));
        let made = names.of(&service, &domain);
        let failed =
            |error: TemplateError| Error::new(ErrorKind::InvalidOperation, error.to_string());
        Ok(Value::from(made.map_err(failed)?.iter().map(value).collect::<Vec<_>>()))
    });
}

fn too_large() -> Error {
    Error::new(ErrorKind::InvalidOperation, "the numbers are too large")
}

/// Data as a value of this engine.
fn value(data: &Data) -> Value {
    match data {
        Data::Null => Value::from(()),
        Data::Flag(flag) => Value::from(*flag),
        Data::Number(number) => Value::from(*number),
        Data::Text(text) | Data::Address(text) => Value::from(text.clone()),
        Data::List(list) => Value::from(list.iter().map(value).collect::<Vec<_>>()),
        Data::Fields(fields) => Value::from_object(Fields(fields.clone())),
    }
}

/// An object that prints as its `String`.
#[derive(Debug)]
struct Fields(BTreeMap<Arc<str>, Data>);

impl Object for Fields {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_str()?).map(value)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.keys().map(|key| Value::from(key.clone())).collect())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(STRING) {
            Some(Data::Text(text)) => f.write_str(text),
            _ => f.debug_map().entries(self.0.iter().map(|(k, v)| (k, value(v)))).finish(),
        }
    }
}
