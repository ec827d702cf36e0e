//! The last changes: the Events that Bowline writes, the newest first. Pure.

use super::Row;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// The most changes that are shown.
const MOST: usize = 100;

pub(super) const HEAD: [&str; 4] = ["TIME", "OBJECT", "REASON", "MESSAGE"];

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Changed {
    /// When it was seen last.
    time: String,
    /// The time of day.
    #[serde(skip)]
    clock: String,
    kind: String,
    /// Empty for objects that are in none.
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    reason: String,
    message: String,
    /// Whether it is a Warning.
    warning: bool,
    /// How often it was seen.
    count: i32,
}

/// The last changes among Events.
pub(crate) fn changes(events: &[Event]) -> Vec<Changed> {
    let mut all: Vec<(Timestamp, &Event)> =
        events.iter().filter_map(|event| Some((seen(event)?, event))).collect();
    all.sort_by(|(one, first), (other, second)| {
        other.cmp(one).then_with(|| first.metadata.name.cmp(&second.metadata.name))
    });
    all.truncate(MOST);
    all.into_iter().map(|(at, event)| changed(at, event)).collect()
}

fn seen(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|it| it.0);
    last.or_else(|| event.metadata.creation_timestamp.as_ref().map(|it| it.0))
}

fn changed(at: Timestamp, event: &Event) -> Changed {
    let object = &event.involved_object;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Changed {
        time: at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        clock: at.strftime("%H:%M:%S").to_string(),
        kind: text(&object.kind),
        namespace: text(&object.namespace),
        name: text(&object.name),
        reason: text(&event.reason),
        message: text(&event.message),
        warning: event.type_.as_deref() == Some("Warning"),
        count: event.count.unwrap_or(1).max(1),
    }
}

impl Changed {
    /// Whether it is about an object of a namespace.
    pub(super) fn concerns(&self, namespace: &str) -> bool {
        self.namespace == namespace
    }

    pub(super) fn row(&self) -> Row {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        let times = if self.count > 1 { format!(" (×{})", self.count) } else { String::new() };
        Row {
            cells: vec![
                self.clock.clone(),
                format!("{} {}{slash}{}", self.kind, self.namespace, self.name),
                self.reason.clone(),
                format!("{}{times}", self.message),
            ],
            wrong: self.warning,
        }
    }
}
