//! Bounds how many endpoints the ports of each namespace have in a view: a template's proxy has a line of
//! configuration for each, and a Service with many endpoints and many ports needs the product of both. Endpoints that
//! a port had in the last view stay; those beyond the bound are left out, and the Service is told. Pure;
//! [`super::view`] calls it.

use super::view::{Endpoint, Entry, PortSpec, Told};
use crate::key::ConsumerRef;
use crate::outcome::{Problem, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The endpoints that each port had in the last view.
#[derive(Debug, Default)]
pub(super) struct Crowds(BTreeMap<(ConsumerRef, PortSpec), Addresses>);

/// Address and port of endpoints.
pub(super) type Addresses = BTreeSet<(IpAddr, u16)>;

impl Crowds {
    /// The endpoints of a view.
    pub(super) fn of(entries: &[Entry]) -> Self {
        let ports = entries.iter().map(|it| {
            let endpoints = it.endpoints.iter().map(|it| (it.ip, it.port));
            ((it.consumer.clone(), it.port.clone()), endpoints.collect())
        });
        Self(ports.collect())
    }

    /// The endpoints that a port had.
    pub(super) fn had(&self, consumer: &ConsumerRef, port: &PortSpec) -> Option<&Addresses> {
        self.0.get(&(consumer.clone(), port.clone()))
    }

    /// Leaves every namespace `most` endpoints: first those that its ports had, then others, of the first ports
    /// first.
    pub(super) fn bound(&self, entries: &mut [Entry], most: usize, told: &mut Vec<Told>) {
        let mut namespaces = BTreeMap::<Arc<str>, Vec<&mut Entry>>::new();
        for entry in entries {
            namespaces.entry(Arc::clone(entry.namespace())).or_default().push(entry);
        }
        for mut entries in namespaces.into_values() {
            if entries.iter().map(|it| it.endpoints.len()).sum::<usize>() > most {
                self.bound_one(&mut entries, most, told);
            }
        }
    }

    /// The same for the entries of one namespace, which has more endpoints than that.
    fn bound_one(&self, entries: &mut [&mut Entry], most: usize, told: &mut Vec<Told>) {
        let kept: Vec<_> = entries
            .iter()
            .map(|entry| {
                let before = self.had(&entry.consumer, &entry.port);
                entry.endpoints.iter().filter(|it| has(before, it)).count()
            })
            .collect();
        let mut left = most.saturating_sub(kept.iter().sum());
        let mut over = BTreeMap::<ConsumerRef, usize>::new();
        for (entry, kept) in entries.iter_mut().zip(kept) {
            let before = self.had(&entry.consumer, &entry.port);
            let all = entry.endpoints.len();
            let mut new = left.min(all - kept);
            left -= new;
            entry.endpoints.retain(|it| {
                let comes = !has(before, it) && new > 0;
                new -= usize::from(comes);
                comes || has(before, it)
            });
            if entry.endpoints.len() < all {
                *over.entry(entry.consumer.clone()).or_default() += all - entry.endpoints.len();
            }
        }
        told.extend(over.into_iter().map(|(consumer, over)| {
            let members = if over == 1 { "1 member" } else { &format!("{over} members") };
            let message = format!(
                "{members} of Service {}/{} get no traffic: a namespace can have at most {most} over all its ports",
                consumer.namespace, consumer.name
            );
            Told { problem: Problem::new(Reason::TooManyMembers, message), consumer }
        }));
    }
}

fn has(before: Option<&Addresses>, endpoint: &Endpoint) -> bool {
    before.is_some_and(|before| before.contains(&(endpoint.ip, endpoint.port)))
}
