//! What the file preserves over a restart, a killed process, a power cut and a failing disk; and how
//! foreign files are refused.

use super::testing::{Medium, WIDE, coin, create, delete, few, key, thing, update};
use super::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    (folder, path)
}

/// All that can be read of a resource, from revision `from` on.
async fn view(store: &Store, resource: &str, from: u64) -> (Page, Vec<Event>) {
    let page = store.list(resource, &ListQuery::default()).unwrap();
    let events = store.watch(resource, from).unwrap().next().await.unwrap();
    (page, events.iter().map(|event| Event::clone(event)).collect())
}

async fn some_life(store: &Store) {
    store.write(create(&thing("n/a"), 0.1).claiming(&["c"])).await.unwrap();
    store.write(create(&thing("n/b"), "b")).await.unwrap();
    store.write(update(&thing("n/a"), 2, 2).claiming(&["d"])).await.unwrap();
    store.write(update(&thing("n/a"), 4, 3).claiming(&["d"])).await.unwrap();
    store.write(delete(&thing("n/b"), 3)).await.unwrap();
    store.write(create(&thing("n/b"), "again")).await.unwrap();
    store.write(create(&key("others", "o"), 1)).await.unwrap();
    store.write(delete(&key("others", "o"), 8)).await.unwrap();
}

#[tokio::test]
async fn everything_is_the_same_after_a_restart() {
    let (_folder, path) = file();
    let store = Store::open(&path, WIDE).unwrap();
    some_life(&store).await;
    let before = (view(&store, "things", 1).await, view(&store, "others", 1).await);
    store.close().await;

    let store = Store::open(&path, WIDE).unwrap();
    assert_eq!(store.revision(), 9);
    assert_eq!((view(&store, "things", 1).await, view(&store, "others", 1).await), before);
    assert_eq!([store.claimed_by("c"), store.claimed_by("d")], [None, Some(thing("n/a"))]);
    let next = store.write(create(&key("others", "o"), 1)).await.unwrap();
    assert_eq!(next.entry.revision, 10, "the newest objects were deleted; their numbers stay used");
}

#[tokio::test]
async fn current_objects_and_history_share_their_bytes_after_a_restart() {
    let medium = Medium::default();
    let store = medium.open(WIDE);
    some_life(&store).await;
    store.close().await;
    let store = medium.open(WIDE);
    let events = store.watch("things", 1).unwrap().next().await.unwrap();
    let current = store.get(&thing("n/a")).unwrap();
    assert_eq!(events[3].object.as_ptr(), current.bytes.as_ptr());
    assert_eq!(events[3].previous.as_ref().unwrap().as_ptr(), events[2].object.as_ptr());
}

#[tokio::test]
async fn a_store_that_is_dropped_without_being_closed_can_be_opened_at_once() {
    let (_folder, path) = file();
    let store = Store::open(&path, WIDE).unwrap();
    some_life(&store).await;
    drop(store);
    assert_eq!(Store::open(&path, WIDE).unwrap().revision(), 9);
}

#[tokio::test]
async fn an_expired_history_stays_expired_and_a_kept_one_resumes() {
    let medium = Medium::default();
    let store = medium.open(few(2));
    some_life(&store).await;
    drop(store);
    let store = medium.open(few(2));
    assert_eq!(store.watch("things", 4).map(|_| ()), Err(Expired { requested: 4, oldest: 5 }));
    let events = store.watch("things", 5).unwrap().next().await.unwrap();
    assert_eq!(events.iter().map(|e| e.revision).collect::<Vec<_>>(), [6, 7]);
    assert_eq!(store.watch("others", 1).unwrap().next().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_copied_after_any_acknowledged_write_has_that_write() {
    let (folder, path) = file();
    let store = Store::open(&path, few(5)).unwrap();
    let a = thing("n/a");
    let mut current = store.write(create(&a, 0)).await.unwrap().entry;
    for i in 1..30 {
        current = store.write(update(&a, current.revision, i)).await.unwrap().entry;
        let copy = folder.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        let copied = Store::open(&copy, few(5)).unwrap();
        assert_eq!((copied.revision(), copied.get(&a)), (store.revision(), Some(current.clone())));
        assert_eq!(
            copied.list("things", &ListQuery::default()),
            store.list("things", &ListQuery::default())
        );
    }
}

/// Several creates, updates and deletions of different sizes, queued together.
async fn all_at_once(store: &Store, round: usize) -> Vec<Result<Committed, WriteError>> {
    let writes = (0..=round % 4).map(|i| {
        let a = thing(&format!("n/{i}"));
        let value = format!("{round}").repeat(300 * i + 1);
        match store.get(&a) {
            Some(entry) if i == 2 => delete(&a, entry.revision),
            Some(entry) => update(&a, entry.revision, value),
            None => create(&a, value),
        }
    });
    futures::future::join_all(writes.map(|write| store.write(write))).await
}

#[tokio::test]
async fn wherever_it_is_cut_off_it_has_all_that_was_acknowledged_and_nothing_half() {
    let (medium, reference) = (Medium::default(), Store::memory(WIDE));
    let store = medium.open(few(4));
    let mut acknowledged = vec![(medium.age(), 1)];
    for round in 0..6 {
        let expected = all_at_once(&reference, round).await;
        assert_eq!(all_at_once(&store, round).await, expected);
        acknowledged.push((medium.age(), store.revision()));
    }

    let acknowledged_at = |age| acknowledged.iter().rev().find(|(at, _)| *at <= age).unwrap().1;
    let latest = store.revision();
    drop(store);
    let mut survivors = Vec::new();
    for age in (acknowledged[0].0..=medium.age()).step_by(5) {
        let cut = medium.at_age(age);
        for cut in [cut.killed(), cut.power_cut(|| false), cut.power_cut(coin(age as u64))] {
            let store = cut.open(few(4));
            let (least, revision) = (acknowledged_at(age), store.revision());
            assert!((least..=latest).contains(&revision), "{least} {revision} at {age}");
            let query = ListQuery { at: Some(revision), ..ListQuery::default() };
            assert_eq!(store.list("things", &query), reference.list("things", &query));
            if revision > least {
                survivors.push(revision);
            }
        }
    }
    assert!(!survivors.is_empty(), "no cut fell between a commit and its acknowledgement");
}

#[tokio::test]
async fn a_creation_that_is_killed_anywhere_can_be_started_again() {
    let (_folder, path) = file();
    let medium = Medium::default();
    drop(medium.open(WIDE));
    for age in (0..=medium.age()).step_by(2) {
        fs::write(&path, medium.at_age(age).bytes()).unwrap();
        let store = Store::open(&path, WIDE).unwrap();
        assert_eq!(store.revision(), 1);
        store.write(create(&thing("n/a"), 1)).await.unwrap();
    }
}

#[tokio::test]
async fn a_failing_disk_refuses_writes_and_changes_nothing() {
    let medium = Medium::default();
    let store = medium.open(WIDE);
    some_life(&store).await;
    let before = view(&store, "things", 1).await;
    let mut watch = store.watch("things", store.revision()).unwrap();
    medium.break_down();

    let writes = [create(&thing("n/c"), 1), create(&thing("n/c"), 1), delete(&thing("n/a"), 5)];
    let answers = futures::future::join_all(writes.map(|write| store.write(write))).await;
    for answer in answers {
        assert!(
            matches!(&answer, Err(WriteError::Storage(why)) if why.contains("moon")),
            "{answer:?}"
        );
    }
    assert_eq!(view(&store, "things", 1).await, before);
    assert_eq!((store.revision(), store.claimed_by("d")), (9, Some(thing("n/a"))));
    assert!(futures::FutureExt::now_or_never(watch.next()).is_none());
    assert!(store.failure().unwrap().contains("moon"));
    drop(store);

    let store = medium.killed().open(WIDE);
    assert_eq!(view(&store, "things", 1).await, before);
    store.write(create(&thing("n/c"), 1)).await.unwrap();
}

#[tokio::test]
async fn a_store_whose_disk_works_again_takes_writes_and_has_only_what_was_acknowledged() {
    let (medium, next) = (Medium::default(), Medium::default());
    medium.goes_on(&next);
    next.break_down();
    let store = medium.open(WIDE);
    some_life(&store).await;
    let before = (view(&store, "things", 1).await, view(&store, "others", 1).await);
    medium.break_down();
    let refused = store.write(create(&thing("n/c"), 1)).await;
    assert!(
        matches!(&refused, Err(WriteError::Storage(why)) if why.contains("moon")),
        "{refused:?}"
    );

    next.mend();
    let written = loop {
        match store.write(create(&thing("n/d"), 1)).await {
            Ok(written) => break written,
            Err(WriteError::Storage(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!((written.entry.revision, store.failure()), (10, None));
    assert_eq!(store.get(&thing("n/c")), None, "it was refused");
    let events = store.watch("things", 9).unwrap().next().await.unwrap();
    assert_eq!(events.iter().map(|event| &event.key).collect::<Vec<_>>(), [&thing("n/d")]);
    store.write(delete(&thing("n/d"), 10)).await.unwrap();
    drop(store);

    let store = next.killed().open(WIDE);
    assert_eq!(store.revision(), 11);
    assert_eq!((store.get(&thing("n/c")), store.claimed_by("d")), (None, Some(thing("n/a"))));
    let things = view(&store, "things", 1).await;
    assert_eq!(
        (&things.0.items, &things.1[..before.0.1.len()]),
        (&before.0.0.items, &before.0.1[..])
    );
    assert_eq!(view(&store, "others", 1).await.1, before.1.1);
}

#[test]
fn a_store_that_is_written_again_takes_the_place_of_its_file_and_stays_locked() {
    let (folder, path) = file();
    let disk = disk::Disk::open(&path).unwrap();
    let mut names = names::Names::default();
    let state = disk.load(&mut names).unwrap();
    let renewed = disk.renewed(&state).unwrap();
    drop(disk);
    assert!(matches!(Store::open(&path, WIDE), Err(OpenError::InUse)));
    drop(renewed);
    assert_eq!(Store::open(&path, WIDE).unwrap().revision(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[tokio::test]
async fn a_new_file_whose_folder_cannot_be_synced_is_kept_and_takes_no_writes() {
    let (medium, unsettled, last) = (Medium::default(), Medium::default(), Medium::default());
    medium.goes_on(&unsettled);
    unsettled.goes_on(&last);
    unsettled.unsettle();
    let store = medium.open(WIDE);
    some_life(&store).await;
    medium.break_down();
    let mut refusals = Vec::new();
    let written = loop {
        match store.write(create(&thing("n/d"), 1)).await {
            Ok(written) => break written,
            Err(WriteError::Storage(why)) => refusals.push(why),
            Err(other) => panic!("{other}"),
        }
        tokio::task::yield_now().await;
    };
    assert!(refusals.iter().any(|why| why.contains("the folder is on the moon")), "{refusals:?}");
    assert_eq!((written.entry.revision, store.failure()), (10, None));
    drop(store);
    assert_eq!(last.killed().open(WIDE).revision(), 10, "it went on after the one that was kept");
}

#[test]
fn what_a_process_left_that_was_killed_while_it_wrote_a_new_file_is_removed() {
    let (folder, path) = file();
    drop(Store::open(&path, WIDE).unwrap());
    let left = path.with_file_name("store.redb.new");
    assert_eq!(path.file_name().unwrap(), "store.redb");
    fs::write(&left, "half").unwrap();
    let store = Store::open(&path, WIDE).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the store");
    // A process that does not get the store removes nothing of the process that has it.
    fs::write(&left, "half").unwrap();
    assert!(matches!(Store::open(&path, WIDE), Err(OpenError::InUse)));
    assert!(left.exists());
    drop(store);
}

#[cfg(unix)]
#[test]
fn a_store_that_is_a_link_is_written_again_where_the_link_leads() {
    let (folder, path) = file();
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("there");
    std::os::unix::fs::symlink(&file, &path).unwrap();
    let disk = disk::Disk::open(&path).unwrap();
    let state = disk.load(&mut names::Names::default()).unwrap();
    let renewed = disk.renewed(&state).unwrap();
    renewed.settle().unwrap();
    assert!(path.is_symlink() && file.is_file());
    drop((disk, renewed));
    assert_eq!(Store::open(&path, WIDE).unwrap().revision(), 1);
    let left = |folder: &std::path::Path| fs::read_dir(folder).unwrap().count();
    assert_eq!((left(folder.path()), left(other.path())), (1, 1));
}

#[tokio::test]
async fn a_second_opener_is_told_that_the_file_is_in_use() {
    let (_folder, path) = file();
    let store = Store::open(&path, WIDE).unwrap();
    assert!(matches!(Store::open(&path, WIDE), Err(OpenError::InUse)));
    let other = store.clone();
    store.close().await;
    Store::open(&path, WIDE).unwrap();
    drop(other);
}

#[cfg(unix)]
#[test]
fn the_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = file();
    Store::open(&path, WIDE).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let (_folder, path) = file();
    for content in [b"something else entirely".to_vec(), [vec![0; 9000], b"x".to_vec()].concat()] {
        fs::write(&path, &content).unwrap();
        let error = Store::open(&path, WIDE).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_folder_that_is_not_there_is_an_io_error() {
    let (_folder, path) = file();
    let error = Store::open(&path.join("deeper"), WIDE).unwrap_err();
    assert!(matches!(error, OpenError::Io(_)), "{error}");
}

#[test]
fn a_file_whose_creation_was_cut_short_is_created_again() {
    let (_folder, path) = file();
    Store::open(&path, WIDE).unwrap();
    let mut begun = fs::read(&path).unwrap();
    begun[..9].fill(0);
    begun[4096..].fill(0);
    fs::write(&path, begun).unwrap();
    assert_eq!(Store::open(&path, WIDE).unwrap().revision(), 1);
}

#[test]
fn a_file_of_another_format_is_refused_by_number() {
    let (_folder, path) = file();
    Store::open(&path, WIDE).unwrap();
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("format", 7).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Store::open(&path, WIDE).unwrap_err();
    assert_eq!(error.to_string(), "the store's file has format 7, this program reads format 1");
}

#[tokio::test]
async fn a_log_that_does_not_fit_the_objects_is_refused() {
    let (_folder, path) = file();
    let store = Store::open(&path, WIDE).unwrap();
    some_life(&store).await;
    store.close().await;
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let log = redb::TableDefinition::<(&str, u64), (bool, &str, &str, Option<&[u8]>)>::new("log");
    transaction.open_table(log).unwrap().remove(("things", 4)).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Store::open(&path, WIDE).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
}
