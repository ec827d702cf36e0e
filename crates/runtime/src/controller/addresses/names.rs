//! DNS names that Services ask for: which are to be looked up, what was found, and what Services are told of it.
//! `bowline_core::dns` decides when a name is looked up, the address machine what an answer means.

use super::AddressShell;
use bowline_core::addresses::{self, AddressRequest, Answer, Ask, Event, HolderRef};
use bowline_core::dns::{self, Name, Report};
use bowline_core::key::ObjectKey;
use bowline_core::status::Condition;

impl AddressShell {
    /// Notes which DNS name a Service asks for.
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

    /// Takes the names to be looked up from now on, or no longer.
    pub(in crate::controller) fn take_lookups(&mut self) -> Vec<dns::Event> {
        std::mem::take(&mut self.lookups.events)
    }

    /// A name was looked up: the Services whose condition may be another one.
    pub(in crate::controller) fn found(&mut self, name: Name, report: Report) -> Vec<ObjectKey> {
        let answer = Answer::of(&report.answers);
        self.tell(Event::Resolved { name: name.as_str().into(), answer });
        // A TTL counts down in caches, and the next look is a little late each time: no Service is
        // written for that.
        let before = self.lookups.found.get(&name);
        if before.is_some_and(|before| before.answers.says_as(&report.answers)) {
            return Vec::new();
        }
        let services = self.lookups.wants.users(&name).cloned().collect();
        self.lookups.found.insert(name, report);
        services
    }

    /// What a Service is told of its DNS name, where its condition says this now. None: it asks for none.
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
