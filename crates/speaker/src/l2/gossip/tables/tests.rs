use super::{Tables, Word};
use crate::cases::cases;
use crate::dice::Dice;
use crate::l2::gossip::seal::BODY_LIMIT;
use crate::l2::gossip::wire::Delta;
use crate::l2::member::{Hold, MemberId, Profile, Stance, Standing};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const A: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const C: MemberId = MemberId(3);

fn address(number: u32) -> IpAddr {
    if number.is_multiple_of(2) {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    } else {
        Ipv6Addr::from(0x2001_0db8_0000_0000_0000_0000_0000_0000 + u128::from(number)).into()
    }
}

fn profile(name: &str) -> Word {
    Word::Profile(Profile { name: name.into(), macs: vec![], at: None })
}

fn owned() -> Stance {
    Stance { standing: Standing::Eligible, hold: Hold::Owns }
}

/// What `tables` knows that a member says, without what says nothing.
fn known(tables: &Tables, of: MemberId) -> BTreeMap<IpAddr, Stance> {
    let table = if of == tables.me { Some(&tables.own) } else { tables.get(&of) };
    let stances = table.into_iter().flat_map(|it| it.stances());
    stances.filter(|it| it.1 != Stance::NOTHING).collect()
}

/// `to` asks `from` until it has everything. How many datagrams that takes.
fn sync(from: &mut Tables, to: &mut Tables, members: &[MemberId]) -> usize {
    let mut datagrams = 0;
    for round in 0.. {
        assert!(round < 1000, "it does not end");
        let digest = to.digest(members, &mut Dice::new(1));
        let deltas = from.answer(&digest, members);
        if deltas.is_empty() {
            break;
        }
        datagrams += deltas.len();
        for delta in deltas {
            let bytes = delta.to_bytes();
            assert!(bytes.len() <= BODY_LIMIT, "{}", bytes.len());
            to.apply(&Delta::parse(&bytes).expect("its own bytes"));
        }
    }
    datagrams
}

#[test]
fn ten_thousand_addresses_reach_a_new_member_in_small_datagrams() {
    let mut a = Tables::new(A, 1);
    a.say(&profile("a"));
    for number in 0..10_000 {
        a.say(&Word::Stance(address(number), owned()));
    }
    let mut b = Tables::new(B, 1);
    let datagrams = sync(&mut a, &mut b, &[A]);
    assert_eq!(known(&b, A), known(&a, A));
    assert_eq!(known(&b, A).len(), 10_000);
    assert!(b.get(&A).is_some_and(super::Table::is_current));
    assert!((100..150).contains(&datagrams), "{datagrams}");
    a.news();
    a.say(&Word::Stance(address(77), Stance::NOTHING));
    let news = a.news();
    assert_eq!(news.iter().map(|it| it.words.len()).collect::<Vec<_>>(), [1], "one change");
    let applied = b.apply(&news[0]);
    assert_eq!(applied.words, [Word::Stance(address(77), Stance::NOTHING)]);
    assert_eq!(sync(&mut a, &mut b, &[A]), 0);
}

#[test]
fn a_member_passes_on_what_another_one_says() {
    let (mut a, mut b, mut c) = (Tables::new(A, 1), Tables::new(B, 1), Tables::new(C, 1));
    a.say(&profile("a"));
    for number in 0..200 {
        a.say(&Word::Stance(address(number), owned()));
    }
    sync(&mut a, &mut b, &[A]);
    sync(&mut b, &mut c, &[A]);
    assert_eq!(known(&c, A), known(&a, A));
}

#[test]
fn what_a_member_said_before_it_started_again_counts_until_it_said_everything() {
    let mut b = Tables::new(B, 1);
    let mut a = Tables::new(A, 1);
    a.say(&profile("a"));
    a.say(&Word::Stance(address(1), owned()));
    a.say(&Word::Stance(address(2), owned()));
    sync(&mut a, &mut b, &[A]);
    let old = a.news();
    let mut a = Tables::new(A, 2);
    a.say(&profile("a"));
    a.say(&Word::Stance(address(2), owned()));
    let news = a.news();
    let applied = b.apply(&news[0]);
    assert_eq!(
        applied.words,
        [
            profile("a"),
            Word::Stance(address(2), owned()),
            Word::Stance(address(1), Stance::NOTHING)
        ]
    );
    assert_eq!(b.apply(&old[0]).words, [], "of the earlier table");
    assert_eq!(known(&b, A), known(&a, A));
}

#[test]
fn a_table_that_says_mostly_nothing_begins_anew() {
    let (mut a, mut b) = (Tables::new(A, 1), Tables::new(B, 1));
    a.say(&profile("a"));
    for number in 0..5000 {
        a.say(&Word::Stance(address(number), owned()));
        a.say(&Word::Stance(address(number), Stance::NOTHING));
        if number % 100 == 0 {
            sync(&mut a, &mut b, &[A]);
        }
    }
    a.say(&Word::Stance(address(1), owned()));
    sync(&mut a, &mut b, &[A]);
    assert!(a.own.stances.len() < 2500, "{}", a.own.stances.len());
    assert_eq!(known(&b, A), known(&a, A));
    assert_eq!(known(&b, A).len(), 1);
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn tables_become_equal_whatever_is_lost_and_in_any_order(
        seed: u64,
        words in prop::collection::vec((0..3usize, 0..20u32, any::<bool>()), 1..200),
    ) {
        let mut dice = Dice::new(seed);
        let ids = [A, B, C];
        let mut tables = ids.map(|it| Tables::new(it, 1));
        let mut waiting: Vec<(usize, Delta)> = Vec::new();
        for table in &mut tables {
            table.say(&profile("x"));
        }
        for (by, number, says) in words {
            let stance = if says { owned() } else { Stance::NOTHING };
            tables[by].say(&Word::Stance(address(number), stance));
            for delta in tables[by].news() {
                waiting.extend((0..3).filter(|it| *it != by).map(|it| (it, delta.clone())));
            }
            dice.shuffle(&mut waiting);
            // Some arrive late, some never.
            for (to, delta) in waiting.split_off(waiting.len() / 2) {
                if dice.below(4) > 0 {
                    tables[to].apply(&delta);
                }
            }
            let (from, to) = (dice.below(3), dice.below(3));
            let digest = tables[to].digest(&ids, &mut dice);
            let deltas = tables[from].answer(&digest, &ids);
            waiting.extend(deltas.into_iter().map(|it| (to, it)));
        }
        for _ in 0..2 {
            for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)] {
                let mut target = std::mem::replace(&mut tables[to], Tables::new(ids[to], 0));
                sync(&mut tables[from], &mut target, &ids);
                tables[to] = target;
            }
        }
        for of in 0..3 {
            for at in 0..3 {
                prop_assert_eq!(known(&tables[at], ids[of]), known(&tables[of], ids[of]));
            }
        }
    }
}
