//! Which certificate of an Ingress is for which of its hosts. Pure functions, called by `routes`
//! and `ingress`.

use super::hosts::TlsOffer;
use crate::key::ObjectKey;
use crate::objects::{Ingress, IngressTls, TlsSecret};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::{CertificateRef, Host, SiteTls};
use std::collections::BTreeMap;

/// How an Ingress would serve its hosts over TLS, and what is wrong with that. Of several entries
/// for a host the first counts. An entry that names the host comes before one with a wildcard
/// around it, and that before one for all hosts.
pub(super) fn offers<'h, 's>(
    ingress: &Ingress,
    hosts: impl Iterator<Item = &'h Host>,
    secret: impl Fn(&ObjectKey) -> Option<&'s TlsSecret>,
) -> (BTreeMap<Host, TlsOffer>, Vec<Problem>) {
    let mut named = BTreeMap::new();
    for (i, entry) in ingress.tls.iter().enumerate() {
        entry.hosts.iter().for_each(|host| _ = named.entry(host).or_insert(i));
    }
    let for_all = ingress.tls.iter().position(|entry| entry.hosts.is_empty());
    let entries: Vec<_> = ingress.tls.iter().map(|entry| offer(ingress, entry, &secret)).collect();
    let mut used = vec![false; entries.len()];
    let mut offers = BTreeMap::new();
    for host in hosts {
        let around = || named.get(&wildcard_around(host)?).copied();
        if let Some(i) = named.get(host).copied().or_else(around).or(for_all) {
            used[i] = true;
            offers.insert(host.clone(), entries[i].0.clone());
        }
    }
    let mut problems = Vec::new();
    for ((entry, (_, problem)), used) in ingress.tls.iter().zip(entries).zip(used) {
        if used {
            problems.extend(problem);
        } else if let Some(name) = &entry.secret {
            let message = format!("TLS with Secret {} names no host of a rule", quote(name));
            problems.push(Problem::new(Reason::NotSupported, message));
        }
    }
    (offers, problems)
}

fn wildcard_around(host: &Host) -> Option<Host> {
    match host {
        Host::Exact(name) => name.split_once('.').map(|(_, domain)| Host::Wildcard(domain.into())),
        _ => None,
    }
}

fn offer<'a>(
    ingress: &Ingress,
    entry: &IngressTls,
    secret: impl Fn(&ObjectKey) -> Option<&'a TlsSecret>,
) -> (TlsOffer, Option<Problem>) {
    let key = entry
        .secret
        .as_ref()
        .map(|name| ObjectKey::new(ingress.key.namespace.clone(), name.clone()));
    let certificate = match &key {
        None => Err(Problem::new(Reason::SecretNotFound, "TLS names no Secret")),
        Some(key) => match secret(key) {
            Some(secret) => secret.certificate.clone(),
            None => {
                let message = format!("TLS Secret {} does not exist", quote(&key.name));
                Err(Problem::new(Reason::SecretNotFound, message))
            }
        },
    };
    let (certificate, size, problem) = match certificate {
        Ok(it) => (Some(CertificateRef { hash: it.hash }), Some(it.size), None),
        Err(problem) => (None, None, Some(problem)),
    };
    let secret = key.zip(size);
    let site = SiteTls { certificate, redirect: ingress.redirect };
    (TlsOffer { site, secret }, problem)
}
