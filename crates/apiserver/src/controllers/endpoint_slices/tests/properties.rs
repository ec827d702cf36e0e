//! Properties of the slices that hold after any history.

use super::super::plan::LARGEST;
use super::super::records::Condition;
use super::*;
use proptest::prelude::*;

/// An event of Pod `number`, named by its state afterwards.
#[derive(Clone, Debug)]
enum Step {
    Ready,
    Unready,
    OtherPort,
    Relabelled,
    Gone,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        4 => Just(Step::Ready),
        1 => Just(Step::Unready),
        1 => Just(Step::OtherPort),
        1 => Just(Step::Relabelled),
        2 => Just(Step::Gone),
    ];
    prop::collection::vec((0usize..230, step), 1..400)
}

fn event(number: usize, step: &Step) -> Event<(Name, Offer)> {
    let port = |number: i32| json!([{"name": "web", "containerPort": number}]);
    let pod = mk_pod(number, |pod| {
        pod["spec"]["containers"][0]["ports"] = port(80);
        match step {
            Step::OtherPort => pod["spec"]["containers"][0]["ports"] = port(81),
            Step::Unready => pod["status"]["conditions"][0]["status"] = json!("False"),
            Step::Relabelled => pod["metadata"]["labels"]["app"] = json!("other"),
            Step::Ready | Step::Gone => {}
        }
    });
    if matches!(step, Step::Gone) { Event::Delete(pod) } else { Event::Apply(pod) }
}

fn endpoints(world: &World) -> BTreeMap<Name, (Vec<Port>, Condition)> {
    let mut all = BTreeMap::new();
    for slice in world.slices.values() {
        for (identity, condition) in &slice.endpoints {
            let pod = identity.target.clone().unwrap();
            let known = all.insert(pod, (slice.ports.clone(), condition.clone()));
            assert!(known.is_none(), "twice: {identity:?}");
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn history_does_not_matter_to_what_is_in_the_slices(steps in steps(), often in 1usize..50) {
        let named = |it: &mut Value| it["spec"]["ports"][0]["targetPort"] = json!("web");
        let mut eventful = World::new();
        eventful.service(named);
        let mut last = BTreeMap::new();
        for (count, (number, step)) in steps.iter().enumerate() {
            eventful.index.observe(Seen::Pod(event(*number, step)));
            last.insert(*number, step.clone());
            if count % often == 0 {
                eventful.settle();
                prop_assert!(eventful.sizes().iter().all(|size| *size <= LARGEST));
            }
        }
        eventful.settle();

        let mut fresh = World::new();
        for (number, step) in last.iter().rev() {
            fresh.index.observe(Seen::Pod(event(*number, step)));
        }
        fresh.service(named);
        fresh.settle();
        prop_assert_eq!(endpoints(&eventful), endpoints(&fresh));

        // After a relist that shows the same objects, nothing is written.
        let relist = last.iter().map(|(number, step)| event(*number, step));
        eventful.index.observe(Seen::Pod(Event::Init));
        for event in relist {
            if let Event::Apply(pod) = event {
                eventful.index.observe(Seen::Pod(Event::InitApply(pod)));
            }
        }
        eventful.index.observe(Seen::Pod(Event::InitDone));
        prop_assert_eq!(eventful.settle(), vec![]);
    }
}
