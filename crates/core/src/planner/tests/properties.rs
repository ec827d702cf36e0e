//! What holds in every world, whatever happened to it before.

use super::world::{KINDS, LOAD_BALANCERS, Step, World, config, object, steps};
use crate::hash::PlanHash;
use crate::key::{ConsumerRef, ObjectKey};
use crate::objects::{AllowedNamespaces, LoadBalancer};
use crate::outcome::{Outcome, State};
use crate::plan::{Action, Fragment, Serves};
use crate::planner::{Changes, Config, Event, Kind, Object, Planner};
use crate::update::ListenerKey;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that a planner says.
#[derive(Debug, PartialEq)]
struct Snapshot {
    fragments: BTreeMap<(Arc<str>, ConsumerRef), Vec<Arc<Fragment>>>,
    outcomes: BTreeMap<ConsumerRef, Outcome>,
    hashes: [PlanHash; 2],
    certificates: [BTreeMap<Arc<str>, Vec<ObjectKey>>; 2],
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

/// What a reader of changes has, who never asks for anything else.
#[derive(Default)]
struct Follower {
    fragments: BTreeMap<(Arc<str>, ConsumerRef), Vec<Arc<Fragment>>>,
    outcomes: BTreeMap<ConsumerRef, Outcome>,
}

impl Follower {
    /// Takes in changes, each of which must be one.
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
        if matches!(step, Step::Take) {
            follower.follow(planner.take())?;
        }
        world.step(step).into_iter().for_each(|event| planner.handle(event));
    }
    follower.follow(planner.take())?;
    let snapshot = snapshot(&planner);
    prop_assert_eq!(&follower.fragments, &snapshot.fragments);
    prop_assert_eq!(&follower.outcomes, &snapshot.outcomes);
    Ok((world, planner))
}

proptest! {
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
            whole(&fragments)?;
            sites_are_one_namespaces(&fragments)?;
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

/// Every pool that is named is in the same fragment, and no listener is there twice.
fn whole(fragments: &[Arc<Fragment>]) -> Result<(), TestCaseError> {
    let mut listeners = BTreeSet::new();
    let mut pools = BTreeSet::new();
    for fragment in fragments {
        let own: BTreeSet<_> = fragment.pools.iter().map(|pool| &pool.name).collect();
        prop_assert_eq!(own.len(), fragment.pools.len());
        let mut used = BTreeSet::new();
        for listener in &fragment.listeners {
            prop_assert!(listeners.insert(ListenerKey::of(listener)), "twice: {:?}", listener);
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

/// A host has rules of one namespace, each path once, and the same TLS everywhere.
fn sites_are_one_namespaces(fragments: &[Arc<Fragment>]) -> Result<(), TestCaseError> {
    let mut hosts = BTreeMap::new();
    let mut paths = BTreeSet::new();
    for fragment in fragments {
        for site in &fragment.sites {
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
    if lb.deleting && !matches!(lb.claim, Some((_, Some(_)))) {
        return false;
    }
    if consumer.namespace.is_empty() {
        return consumer.name == lb.name;
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
