//! DNS names that Services ask for: which are to be looked up, what was found, and what Services are told
//! of it. When a name is asked for is `bowline_core::dns`' to say, what an answer means the machine's.

use super::*;

impl State {
    /// Notes which DNS name a Service asks for.
    pub(super) fn name(&mut self, key: &ObjectKey, claim: Option<&Ask>) {
        use bowline_core::addresses::Ask::Name as Named;
        let wanted = claim.and_then(|claim| match &claim.ask {
            Ok(Named { name, .. }) => Some((name.parse::<Name>().ok()?, claim.questions())),
            _ => None,
        });
        match &wanted {
            Some((name, _)) => _ = self.pooled.named.insert(key.clone(), name.clone()),
            None => _ = self.pooled.named.remove(key),
        }
        let events = self.pooled.names.set(key.clone(), wanted);
        for event in &events {
            if let dns::Event::Unwant { name } = event {
                self.pooled.found.remove(name);
            }
        }
        self.pooled.look.extend(events);
    }

    /// Names to be looked up from now on, or no longer.
    pub(in crate::controller) fn look(&mut self) -> Vec<dns::Event> {
        std::mem::take(&mut self.pooled.look)
    }

    /// A name was looked up.
    pub(in crate::controller) fn found(&mut self, name: Name, report: Report) {
        let answer = bowline_core::addresses::Answer::of(&report.answers);
        self.pooled.tell(Told::Resolved { name: name.as_str().into(), answer });
        // A TTL counts down in caches, and the next look is a little late each time: no Service is
        // written for that.
        let before = self.pooled.found.get(&name);
        if before.is_some_and(|before| before.answers.says_as(&report.answers)) {
            return;
        }
        let users = self.pooled.names.users(&name);
        let users = users.map(|key| Target::Consumer(ConsumerKind::Service, key.clone()));
        self.dirty.extend(users);
        self.pooled.found.insert(name, report);
    }

    /// What a Service is told of its DNS name.
    pub(in crate::controller::state) fn name_condition(
        &self,
        key: &ObjectKey,
    ) -> Option<status::Condition> {
        let name = self.pooled.named.get(key)?;
        let holder = self.holder(ConsumerKind::Service, key)?;
        let decision = self.pooled.machine.decision(&holder);
        let found = self.pooled.found.get(name);
        let shown = self.services.get(key);
        let from_dns = names::CONDITION_ADDRESS_FROM_DNS;
        let before = shown.and_then(|it| render::condition_of(&it.status.conditions, from_dns));
        Some(bowline_core::addresses::from_name(name.as_str(), found, decision, before))
    }
}
