//! DNS names that Services ask for: which have to be looked up, what was found, and the condition that shows it.
//! It does no look-up: `bowline_core::dns` decides when a name is looked up, and the address machine what an
//! answer means.

use super::AddressShell;
use bowline_core::addresses::{self, AddressRequest, Answer, Ask, Event, HolderRef};
use bowline_core::dns::{self, Name, Report};
use bowline_core::key::ObjectKey;
use bowline_core::status::Condition;

impl AddressShell {
    /// Notes the DNS name that a Service asks for.
    pub(super) fn name(&mut self, key: &ObjectKey, request: Option<&AddressRequest>) {
        let wanted = request.and_then(|request| match &request.ask {
            Ok(Ask::Name { name, .. }) => Some((name.parse::<Name>().ok()?, request.questions())),
            _ => None,
        });
        let lookups = &mut self.lookups;
        match &wanted {
            Some((name, _)) => _ = lookups.by_service.insert(key.clone(), name.clone()),
            None => _ = lookups.by_service.remove(key),
        }
        let events = lookups.wants.set(key.clone(), wanted);
        for event in &events {
            if let dns::Event::Unwant { name } = event {
                lookups.found.remove(name);
            }
        }
        lookups.events.extend(events);
    }

    /// Takes the changes of the names to look up.
    pub(in crate::controller) fn take_lookups(&mut self) -> Vec<dns::Event> {
        std::mem::take(&mut self.lookups.events)
    }

    /// Takes in the answer for a name. Returns the Services whose condition may change.
    pub(in crate::controller) fn found(&mut self, name: Name, report: Report) -> Vec<ObjectKey> {
        let answer = Answer::of(&report.answers);
        self.tell(Event::Resolved { name: name.as_str().into(), answer });
        // TTLs count down in caches, and look-ups are a little late. A Service is not written for that.
        let before = self.lookups.found.get(&name);
        if before.is_some_and(|before| before.answers.says_as(&report.answers)) {
            return Vec::new();
        }
        let services = self.lookups.wants.users(&name).cloned().collect();
        self.lookups.found.insert(name, report);
        services
    }

    /// The condition of a Service about its DNS name; `before` is the present one. None: the Service asks for no
    /// name.
    pub(in crate::controller) fn name_condition(
        &self,
        holder: &HolderRef,
        before: Option<Condition>,
    ) -> Option<Condition> {
        let name = self.lookups.by_service.get(&holder.key)?;
        let found = self.lookups.found.get(name);
        Some(addresses::from_name(name.as_str(), found, self.machine.decision(holder), before))
    }

    /// The names that Services ask for.
    #[cfg(test)]
    pub(in crate::controller) fn names(&self) -> Vec<&Name> {
        self.lookups.by_service.values().collect()
    }
}
