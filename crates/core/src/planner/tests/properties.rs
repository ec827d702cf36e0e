//! Properties that hold in every world, whatever its history.

use super::world::{
    KINDS, LOAD_BALANCERS, Step, World, config, object, settled_steps, steps, writer,
};
use crate::cases::cases;
use crate::hash::PlanHash;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{AllowedNamespaces, LoadBalancer};
use crate::outcome::{Outcome, State};
use crate::plan::{Action, Fragment, Host, Serves};
use crate::planner::{Changes, Config, Event, Kind, NeededCertificates, Object, Planner};
use crate::update::ListenerKey;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that a planner answers.
#[derive(Debug, PartialEq)]
struct Snapshot {
    fragments: BTreeMap<(Arc<str>, ConsumerRef), Vec<Arc<Fragment>>>,
    outcomes: BTreeMap<ConsumerRef, Outcome>,
    hashes: [PlanHash; 2],
    certificates: [NeededCertificates; 2],
    refused: [Vec<Outcome>; 2],
}

fn snapshot(planner: &Planner) -> Snapshot {
    let mut fragments = BTreeMap::<_, Vec<_>>::new();
    for lb in LOAD_BALANCERS {
        for fragment in planner.fragments(lb) {
            let place = (lb.into(), fragment.consumer.clone());
            fragments.entry(place).or_default().push(fragment.clone());
        }
    }
    Snapshot {
        fragments,
        outcomes: planner.outcomes().map(|it| (it.consumer.clone(), it.clone())).collect(),
        hashes: LOAD_BALANCERS.map(|lb| planner.hash(lb)),
        certificates: LOAD_BALANCERS.map(|lb| planner.certificates(lb).clone()),
        refused: LOAD_BALANCERS.map(|lb| planner.refused(lb).cloned().collect()),
    }
}

/// The state of a reader that only follows changes.
#[derive(Default)]
struct Follower {
    fragments: BTreeMap<(Arc<str>, ConsumerRef), Vec<Arc<Fragment>>>,
    outcomes: BTreeMap<ConsumerRef, Outcome>,
}

impl Follower {
    /// Applies changes; each of them must change something.
    fn follow(&mut self, changes: Changes) -> Result<(), TestCaseError> {
        for change in changes.fragments {
            let place = (change.load_balancer, change.consumer);
            let before = if change.parts.is_empty() {
                self.fragments.remove(&place)
            } else {
                self.fragments.insert(place, change.parts.clone())
            };
            prop_assert_ne!(before.unwrap_or_default(), change.parts);
        }
        for (consumer, outcome) in changes.outcomes {
            let before = match &outcome {
                Some(outcome) => self.outcomes.insert(consumer, outcome.clone()),
                None => self.outcomes.remove(&consumer),
            };
            prop_assert_ne!(before, outcome);
        }
        Ok(())
    }
}

fn run(config: Config, steps: Vec<Step>) -> Result<(World, Planner), TestCaseError> {
    let (mut world, mut planner) = (World::default(), Planner::new(config));
    let mut follower = Follower::default();
    for step in steps {
        if matches!(step, Step::Take | Step::Settle) {
            follower.follow(planner.take())?;
        }
        if matches!(step, Step::Settle) {
            follower.follow(settle(&mut world, &mut planner))?;
        }
        world.step(step).into_iter().for_each(|event| planner.handle(event));
    }
    follower.follow(planner.take())?;
    let snapshot = snapshot(&planner);
    prop_assert_eq!(&follower.fragments, &snapshot.fragments);
    prop_assert_eq!(&follower.outcomes, &snapshot.outcomes);
    Ok((world, planner))
}

/// Records what is planned, and returns the changes that follow.
fn settle(world: &mut World, planner: &mut Planner) -> Changes {
    for lb in LOAD_BALANCERS {
        let fragments = planner.fragments(lb).map(|it| (**it).clone()).collect();
        world.settle(lb, fragments).into_iter().for_each(|event| planner.handle(event));
    }
    planner.take()
}

/// The ports and hosts that each consumer has on each load balancer.
type Held = BTreeMap<(&'static str, ConsumerRef), (BTreeSet<ListenerKey>, BTreeSet<Host>)>;

fn held(planner: &Planner) -> Held {
    let mut held = Held::new();
    for lb in LOAD_BALANCERS {
        for fragment in planner.fragments(lb) {
            let (ports, hosts) = held.entry((lb, fragment.consumer.clone())).or_default();
            ports.extend(fragment.listeners.iter().map(ListenerKey::of));
            hosts.extend(fragment.sites.iter().map(|site| site.host.clone()));
        }
    }
    held
}

/// No consumer loses anything, unless a tenant of its namespace wrote. The listeners that Ingresses share belong to
/// every namespace that has an Ingress there.
fn only_the_writer_loses(before: &Held, after: &Held, writer: &str) -> Result<(), TestCaseError> {
    let mut others = before
        .keys()
        .filter(|(_, it)| it.kind == ConsumerKind::Ingress && *it.namespace != *writer);
    let shared: BTreeSet<_> = others.by_ref().map(|(lb, _)| *lb).collect();
    for ((lb, consumer), (ports, hosts)) in before {
        let concerned = match consumer.kind {
            ConsumerKind::LoadBalancer => shared.contains(lb),
            _ => *consumer.namespace != *writer,
        };
        if concerned {
            let none = Default::default();
            let (still_ports, still_hosts) = after.get(&(*lb, consumer.clone())).unwrap_or(&none);
            prop_assert!(
                ports.is_subset(still_ports) && hosts.is_subset(still_hosts),
                "{} lost something on {} by a write in {}",
                consumer,
                lb,
                writer
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn no_write_of_one_namespace_takes_anything_from_another(
        config in config(),
        steps in settled_steps(),
    ) {
        let (mut world, mut planner) = (World::default(), Planner::new(config));
        for step in steps {
            let owner = match &step {
                Step::Apply(object) => writer(object),
                Step::Delete(kind, key) => {
                    world.objects.get(&(*kind, key.clone())).and_then(writer)
                }
                Step::Tweak(which, _) => {
                    let at = which.checked_rem(world.objects.len());
                    at.and_then(|at| writer(world.objects.values().nth(at)?))
                }
                Step::Relist(..) | Step::Take | Step::Settle => Some("nobody".into()),
                _ => None,
            };
            let before = held(&planner);
            world.step(step).into_iter().for_each(|event| planner.handle(event));
            planner.take();
            if let Some(owner) = owner {
                only_the_writer_loses(&before, &held(&planner), &owner)?;
            }
            let before = held(&planner);
            settle(&mut world, &mut planner);
            prop_assert_eq!(before, held(&planner), "recording a plan changes nothing");
        }
    }

    #[test]
    fn history_does_not_matter(config in config(), steps in steps()) {
        let (world, planner) = run(config.clone(), steps)?;
        prop_assert_eq!(snapshot(&planner), snapshot(&world.planned(config)));
    }

    #[test]
    fn the_order_of_objects_does_not_matter(
        config in config(),
        objects in prop::collection::vec(object(), 0..30).prop_shuffle(),
    ) {
        let mut world = World::default();
        objects.into_iter().for_each(|object| _ = world.step(Step::Apply(Box::new(object))));
        let mut planner = Planner::new(config.clone());
        for object in world.objects.values().rev() {
            planner.handle(Event::Apply(Box::new(object.clone())));
            planner.take();
        }
        prop_assert_eq!(snapshot(&planner), snapshot(&world.planned(config)));
    }

    #[test]
    fn objects_that_are_told_again_change_nothing(config in config(), steps in steps()) {
        let (mut world, mut planner) = run(config, steps)?;
        let visited = planner.visited();
        for kind in KINDS {
            world.all(kind).for_each(|event| planner.handle(event));
            world.step(Step::Relist(kind, true)).into_iter().for_each(|it| planner.handle(it));
        }
        world.beside().for_each(|event| planner.handle(event));
        prop_assert_eq!(planner.take(), Changes::default());
        prop_assert_eq!(planner.visited(), visited);
    }

    #[test]
    fn a_list_that_leaves_objects_out_deletes_them(
        config in config(),
        steps in steps(),
        kept in prop::collection::vec(any::<bool>(), 60),
    ) {
        let (mut world, mut listed) = run(config.clone(), steps.clone())?;
        let (_, mut deleted) = run(config, steps)?;
        let ids: Vec<_> = world.objects.keys().cloned().collect();
        for ((kind, key), _) in ids.into_iter().zip(kept).filter(|(_, kept)| !kept) {
            deleted.handle(Event::Delete(kind, key.clone()));
            world.step(Step::Delete(kind, key));
        }
        for kind in KINDS {
            world.step(Step::Relist(kind, false)).into_iter().for_each(|it| listed.handle(it));
        }
        prop_assert_eq!(listed.take(), deleted.take());
        prop_assert_eq!(snapshot(&listed), snapshot(&deleted));
    }

    #[test]
    fn a_plan_contradicts_neither_itself_nor_who_may_use_the_load_balancer(
        config in config(),
        steps in steps(),
    ) {
        let (world, planner) = run(config, steps)?;
        for lb in LOAD_BALANCERS {
            let fragments: Vec<_> = planner.fragments(lb).cloned().collect();
            let twice = Twice::of(&world, lb);
            whole(&fragments, &twice)?;
            sites_are_one_namespaces(&fragments, &twice)?;
            let object = world.objects.get(&(Kind::LoadBalancer, ObjectKey::new("", lb)));
            for fragment in &fragments {
                let Some(Object::LoadBalancer(object)) = object else {
                    return Err(TestCaseError::fail("a plan without a load balancer"));
                };
                prop_assert!(may_use(&world, object, &fragment.consumer), "{:?}", fragment);
            }
            let hash = fragments.iter().fold(PlanHash::default(), |sum, it| sum.plus(PlanHash::of(it)));
            prop_assert_eq!(planner.hash(lb), hash);
        }
        for outcome in planner.outcomes() {
            if let State::Planned { load_balancer, addresses, .. } = &outcome.state {
                prop_assert!(!addresses.is_empty() && addresses.is_sorted());
                let mut fragments = planner.fragments(load_balancer);
                prop_assert!(fragments.any(|fragment| fragment.consumer == outcome.consumer));
            }
        }
    }
}

/// What Plans record for several consumers, as two leaders may leave it. All of them keep it until an agent reports
/// which of them it serves.
#[derive(Default)]
struct Twice {
    ports: BTreeSet<ListenerKey>,
    hosts: BTreeSet<Host>,
}

impl Twice {
    fn of(world: &World, lb: &str) -> Self {
        let (mut ports, mut hosts) =
            (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        let plans = world.recorded.iter().filter(|((on, _), _)| **on == *lb);
        for fragment in plans.flat_map(|(_, fragments)| fragments) {
            for listener in &fragment.listeners {
                ports.entry(ListenerKey::of(listener)).or_default().insert(&fragment.consumer);
            }
            for site in &fragment.sites {
                hosts.entry(site.host.clone()).or_default().insert(&fragment.consumer.namespace);
            }
        }
        Self {
            ports: ports.into_iter().filter(|(_, it)| it.len() > 1).map(|(key, _)| key).collect(),
            hosts: hosts.into_iter().filter(|(_, it)| it.len() > 1).map(|(host, _)| host).collect(),
        }
    }
}

/// Every named pool is in the same fragment, and no listener occurs twice.
fn whole(fragments: &[Arc<Fragment>], twice: &Twice) -> Result<(), TestCaseError> {
    let mut listeners = BTreeSet::new();
    let mut pools = BTreeSet::new();
    for fragment in fragments {
        let own: BTreeSet<_> = fragment.pools.iter().map(|pool| &pool.name).collect();
        prop_assert_eq!(own.len(), fragment.pools.len());
        let mut used = BTreeSet::new();
        for listener in &fragment.listeners {
            let key = ListenerKey::of(listener);
            let once = listeners.insert(key) || twice.ports.contains(&key);
            prop_assert!(once, "twice: {:?}", listener);
            if let Serves::Pool(pool) = &listener.serves {
                used.insert(pool);
            }
        }
        for rule in fragment.sites.iter().flat_map(|site| &site.rules) {
            if let Action::Forward(pools) = &rule.action {
                used.extend(pools.iter().map(|weighted| &weighted.pool));
            }
        }
        prop_assert_eq!(&own, &used);
        prop_assert!(own.into_iter().all(|pool| pools.insert(pool.clone())));
    }
    Ok(())
}

/// A host has rules of one namespace only, each path once, and the same TLS settings everywhere.
fn sites_are_one_namespaces(
    fragments: &[Arc<Fragment>],
    twice: &Twice,
) -> Result<(), TestCaseError> {
    let mut hosts = BTreeMap::new();
    let mut paths = BTreeSet::new();
    for fragment in fragments {
        for site in fragment.sites.iter().filter(|site| !twice.hosts.contains(&site.host)) {
            let here = (&fragment.consumer.namespace, &site.tls);
            let first = hosts.entry(&site.host).or_insert(here);
            prop_assert_eq!(*first, here);
            for rule in &site.rules {
                prop_assert!(paths.insert((&site.host, &rule.path)), "{} twice", site.host);
            }
        }
    }
    Ok(())
}

fn may_use(world: &World, lb: &LoadBalancer, consumer: &ConsumerRef) -> bool {
    if consumer.namespace.is_empty() {
        return consumer.name == lb.name;
    }
    let mut recorded = world.recorded.iter().filter(|((name, _), _)| *name == lb.name);
    let mut stays = || recorded.any(|(_, all)| all.iter().any(|it| it.consumer == *consumer));
    if lb.deleting && !matches!(lb.claim, Some((_, Some(_)))) && !stays() {
        return false;
    }
    if let Some((claim, Some(uid))) = &lb.claim {
        let known = world.objects.get(&(Kind::Claim, claim.clone()));
        let lives = matches!(known, Some(Object::Claim(it)) if it.uid == *uid);
        return lives && claim.namespace == consumer.namespace;
    }
    let id = (Kind::Namespace, ObjectKey::new("", consumer.namespace.clone()));
    match (&lb.allowed, world.objects.get(&id)) {
        (AllowedNamespaces::All, _) => true,
        (AllowedNamespaces::Selector(_), Some(Object::Namespace(namespace))) => {
            namespace.labels["label"] == "1".into()
        }
        _ => false,
    }
}
