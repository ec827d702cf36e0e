use super::{Delta, Digest, Hello, MACS_LIMIT, Mark, NAME_LIMIT, Word, size};
use crate::cases::cases;
use crate::l2::frame::Mac;
use crate::l2::member::{Hold, MemberId, Profile, Stance, Standing};
use proptest::prelude::*;
use std::net::IpAddr;

fn word() -> impl Strategy<Value = Word> {
    let standing = prop::sample::select(vec![
        Standing::Out,
        Standing::Apart,
        Standing::ApartPreferred,
        Standing::Eligible,
        Standing::Preferred,
    ]);
    let hold = prop_oneof![
        Just(Hold::None),
        Just(Hold::Verifies),
        Just(Hold::Owns),
        Just(Hold::Offers(None)),
        any::<u64>().prop_map(|it| Hold::Offers(Some(MemberId(it)))),
        any::<u64>().prop_map(|it| Hold::Lends(MemberId(it))),
        any::<u64>().prop_map(|it| Hold::StandsIn(MemberId(it))),
    ];
    let mac = any::<[u8; 5]>().prop_map(|[a, b, c, d, e]| Mac([2, a, b, c, d, e]));
    let macs = prop::collection::vec(mac, 0..=MACS_LIMIT);
    prop_oneof![
        (any::<IpAddr>(), standing, hold).prop_map(|(address, standing, hold)| {
            Word::Stance(address, Stance { standing, hold })
        }),
        ("[a-z.]{0,253}", macs, any::<Option<IpAddr>>())
            .prop_map(|(name, macs, at)| Word::Profile(Profile { name, macs, at })),
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    (any::<u64>(), any::<u64>(), 0..u64::MAX / 2).prop_map(|(of, table, version)| Mark {
        of: MemberId(of),
        table,
        version,
    })
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn what_is_written_is_read_and_nothing_less(
        complete: bool,
        marks in prop::collection::vec(mark(), 0..5),
        to in mark(),
        words in prop::collection::vec((1..1u64 << 40, word()), 0..5),
        (at, generation, known) in any::<(std::net::SocketAddrV4, u64, u64)>(),
    ) {
        let digest = Digest { complete, marks };
        prop_assert_eq!(Digest::parse(&digest.to_bytes()), Some(digest));
        let hello = Hello { at: at.into(), generation, known };
        prop_assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        let after = to.version / 4;
        let mut last = after;
        let words: Vec<_> = words
            .into_iter()
            .map(|(step, word)| {
                last += step;
                (last, word)
            })
            .collect();
        let to = Mark { version: to.version.max(last), ..to };
        let delta = Delta { to, after, latest: to.version + 1, words };
        let bytes = delta.to_bytes();
        let mut before = after;
        let sizes = delta.words.iter().map(|(version, word)| {
            size(version - std::mem::replace(&mut before, *version), word)
        });
        let size: usize = sizes.sum();
        prop_assert_eq!(bytes.len(), Delta::HEAD + size);
        for cut in 0..bytes.len() {
            let part = Delta::parse(&bytes[..cut]);
            prop_assert!(part.is_none_or(|it| it.words.len() < delta.words.len()));
        }
        prop_assert_eq!(Delta::parse(&bytes), Some(delta));
    }

    #[test]
    fn any_bytes_are_refused_or_mean_what_they_say(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Some(delta) = Delta::parse(&bytes) {
            prop_assert_eq!(delta.to_bytes(), bytes.clone());
        }
        if let Some(digest) = Digest::parse(&bytes) {
            prop_assert_eq!(digest.to_bytes(), bytes.clone());
        }
        if let Some(hello) = Hello::parse(&bytes) {
            prop_assert_eq!(hello.to_bytes(), bytes);
        }
    }
}

#[test]
fn a_long_name_is_cut() {
    let name = "ä".repeat(NAME_LIMIT);
    let to = Mark { of: MemberId(1), table: 1, version: 1 };
    let words = vec![(1, Word::Profile(Profile { name, macs: vec![], at: None }))];
    let delta = Delta { to, after: 0, latest: 1, words };
    let delta = Delta::parse(&delta.to_bytes()).expect("a delta");
    let name = "ä".repeat(126);
    assert_eq!(delta.words, [(1, Word::Profile(Profile { name, macs: vec![], at: None }))]);
}
