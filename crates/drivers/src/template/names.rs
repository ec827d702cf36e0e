//! The names of Services by the administrator's rules: Go templates over the Service and the domain, as in kube2lb's
//! `-server-name-templates`. It reads no cluster; templates and the template role call it.

use super::data::{self, Data, fields};
use super::{TemplateError, go};
use bowline_core::exposed::view::Entry;
use std::path::Path;

/// kube2lb's default.
pub const DEFAULT: &str = "{{ .Service.Name }}.{{ .Service.Namespace }}.svc.{{ .Domain }}";

/// The rules for names.
#[derive(Debug)]
pub struct ServerNames {
    templates: Vec<go::Go>,
}

impl ServerNames {
    /// Parses rules, separated by commas. An empty text means the default.
    pub fn new(rules: &str) -> Result<Self, TemplateError> {
        let rules = if rules.is_empty() { DEFAULT } else { rules };
        let read = |rule: &str| go::Go::new(Path::new("--server-name-templates"), rule, None);
        Ok(Self { templates: rules.split(',').map(read).collect::<Result<_, _>>()? })
    }

    /// The names that the rules make for an entry; none if a rule fails for it.
    pub fn generated(&self, entry: &Entry, domain: &str) -> Vec<String> {
        let service = go::value(&data::service(entry));
        self.generate(&service, domain).unwrap_or_default()
    }

    /// The names by the rules, without duplicates, then the names that the Service asks for.
    pub(super) fn of(
        &self,
        service: &gotmpl::Value,
        domain: &str,
    ) -> Result<Vec<Data>, TemplateError> {
        let made = self.generate(service, domain)?;
        let external = match service.field("External") {
            Some(gotmpl::Value::List(names)) => names.iter().filter_map(|n| n.as_str()).collect(),
            _ => Vec::new(),
        };
        let made = made.iter().map(String::as_str);
        Ok(made.chain(external).map(data::server_name).collect())
    }

    fn generate(
        &self,
        service: &gotmpl::Value,
        domain: &str,
    ) -> Result<Vec<String>, TemplateError> {
        let gotmpl::Value::Map(mut root) = go::value(&fields([("Domain", domain.into())])) else {
            return Ok(Vec::new());
        };
        std::sync::Arc::make_mut(&mut root).insert("Service".into(), service.clone());
        let root = gotmpl::Value::Map(root);
        let mut names = Vec::new();
        for template in &self.templates {
            let name = template.render(&root)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }
}
