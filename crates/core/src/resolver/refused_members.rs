//! Which members are refused now: by the rules, and because a member at an address of a load balancer is a loop. It
//! knows the addresses of all load balancers, and which of them changed. `pools` asks it.

use super::shards::Part;
use crate::member_rules::{MemberRules, Unfit, spellings};
use crate::relist::{Epoch, Relist};
use crate::update::ListenerKey;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The rules, and the addresses of load balancers.
#[derive(Debug, Default)]
pub(super) struct Guard {
    rules: MemberRules,
    /// How many listeners and Plans have each address of a load balancer.
    addresses: BTreeMap<IpAddr, usize>,
    /// How many listeners of this load balancer are open at each address and port.
    ports: BTreeMap<(IpAddr, u16), usize>,
    /// The addresses in each Plan of other load balancers.
    others: BTreeMap<Arc<str>, (Epoch, BTreeSet<IpAddr>)>,
    /// Whether deleted Plans of other load balancers stay.
    holds: bool,
    /// The deleted Plans of other load balancers that stay.
    held: BTreeSet<Arc<str>>,
    /// Addresses for which the answer changed since the last call.
    changed: BTreeSet<IpAddr>,
}

impl Guard {
    /// A guard with these rules.
    pub(super) fn new(rules: MemberRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Why a member gets no traffic. None: it may get traffic.
    pub(super) fn refuse(&self, at: SocketAddr) -> Option<Unfit> {
        let why = self.rules.refuse(at);
        if why.is_some() {
            return why;
        }
        // On loopback a load balancer and a member can only differ in the port.
        let is_ours = |ip: IpAddr| !ip.is_loopback() && self.addresses.contains_key(&ip);
        if spellings(at.ip()).any(is_ours) {
            return Some(Unfit::LoadBalancer);
        }
        let is_open = |ip: IpAddr| self.ports.contains_key(&(ip, at.port()));
        spellings(at.ip()).any(is_open).then_some(Unfit::Agent)
    }

    /// Adds the listeners of a fragment.
    pub(super) fn add(&mut self, part: &Part) {
        part.listeners.iter().for_each(|(key, _)| self.listen(key));
    }

    /// Adds a listener.
    pub(super) fn listen(&mut self, key: &ListenerKey) {
        self.open(key.address);
        for ip in self.opened_at(key.address) {
            let number = self.ports.entry((ip, key.port)).or_default();
            *number += 1;
            if *number == 1 {
                self.changed.insert(ip);
            }
        }
    }

    /// Removes the listeners of a fragment.
    pub(super) fn remove(&mut self, part: &Part) {
        for (key, _) in &part.listeners {
            self.close(key.address);
            for ip in self.opened_at(key.address) {
                let Some(number) = self.ports.get_mut(&(ip, key.port)) else { continue };
                *number -= 1;
                if *number == 0 {
                    self.ports.remove(&(ip, key.port));
                    self.changed.insert(ip);
                }
            }
        }
    }

    /// Takes the addresses in a Plan of another load balancer as they are now.
    pub(super) fn apply_other(
        &mut self,
        plan: &Arc<str>,
        addresses: impl IntoIterator<Item = IpAddr>,
        epoch: Epoch,
    ) {
        self.held.remove(plan);
        let now: BTreeSet<_> = addresses.into_iter().collect();
        now.iter().for_each(|address| self.open(*address));
        let old = self.others.insert(plan.clone(), (epoch, now));
        old.into_iter().flat_map(|(_, old)| old).for_each(|address| self.close(address));
    }

    /// From now on deleted Plans of other load balancers stay, or they do not: then those that stayed are forgotten.
    pub(super) fn hold(&mut self, holds: bool) {
        self.holds = holds;
        if !holds {
            let gone = std::mem::take(&mut self.held);
            gone.iter().for_each(|plan| self.remove_other(plan));
        }
    }

    /// Forgets a Plan of another load balancer, unless deleted ones stay.
    pub(super) fn delete_other(&mut self, plan: &str) {
        if self.holds {
            self.held.extend(self.others.get_key_value(plan).map(|(plan, _)| Arc::clone(plan)));
        } else {
            self.remove_other(plan);
        }
    }

    fn remove_other(&mut self, plan: &str) {
        let old = self.others.remove(plan);
        old.into_iter().flat_map(|(_, old)| old).for_each(|address| self.close(address));
    }

    /// Forgets Plans of other load balancers that the last list did not deliver.
    pub(super) fn sweep_others(&mut self, relist: Relist) {
        let missed = relist.missed(&self.others, |(epoch, _)| *epoch);
        missed.iter().for_each(|name| self.delete_other(name));
    }

    /// The addresses for which the answer changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.changed)
    }

    /// The addresses at which a listener is opened, where only the port distinguishes it from a member: those of this
    /// machine in place of the plan's, and loopback.
    fn opened_at(&self, address: IpAddr) -> Vec<IpAddr> {
        let address = address.to_canonical();
        let machine = || self.rules.machine.iter().map(IpAddr::to_canonical);
        if self.rules.here.iter().any(IpAddr::is_unspecified) {
            machine().collect()
        } else if !self.rules.here.is_empty() {
            self.rules.here.iter().map(IpAddr::to_canonical).collect()
        } else if address.is_unspecified() {
            machine().collect()
        } else if address.is_loopback() {
            vec![address]
        } else {
            Vec::new()
        }
    }

    fn open(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        let number = self.addresses.entry(address).or_default();
        *number += 1;
        if *number == 1 {
            self.changed.insert(address);
        }
    }

    fn close(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        let Some(number) = self.addresses.get_mut(&address) else { return };
        *number -= 1;
        if *number == 0 {
            self.addresses.remove(&address);
            self.changed.insert(address);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty() && self.others.is_empty()
    }
}
