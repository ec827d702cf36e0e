//! Creates and removes the objects behind a load balancer that a class provisions: one trait for every way to do it, in
//! a cluster today, at a cloud's API later. `bowline_core::provision` decides the next step; this module carries out
//! one step at a time. The leader's writer calls it; it may start again after any step.

use bowline_core::provision::{Found, Mark, Step, to_have, to_lose};
use std::fmt::Debug;
use std::future::Future;

/// One way to create what serves a load balancer. The names of parts derive from the load balancer's name, so a later
/// leader finds the parts that exist. Each call may be repeated, and two leaders may make it at once.
pub trait Provisioner: Sync {
    /// One of the objects that it creates.
    type Part: Copy + Debug + Send + Sync;

    /// The present state of every part, in the order of creation.
    fn observe(&self) -> impl Future<Output = Result<Vec<(Self::Part, Found)>, Trouble>> + Send;

    /// Creates a part. A part that exists already is no error: the next `observe` finds it.
    fn create(&self, part: Self::Part) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Brings a part to its desired state, if it still has this mark. If it has not, that is no error.
    fn update(
        &self,
        part: Self::Part,
        mark: Mark,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Deletes a part, if it still has this mark. If it has not, or is gone, that is no error.
    fn delete(
        &self,
        part: Self::Part,
        mark: Mark,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Why a step failed, with advice for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Trouble(pub String);

/// How far `make` or `remove` has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<P> {
    /// Nothing is left to do.
    Done,
    /// The deletion of this part must finish first.
    Waits(P),
    /// A foreign object has the name of this part.
    Blocked(P),
    /// The limit of steps is reached, and the parts still differ from their desired state.
    Restless,
}

/// The limit of steps in one walk, per part: create, update, and update again. A third party that changes parts as fast
/// as we repair them must not keep the writer busy forever.
const MOST: usize = 3;

/// Creates or updates parts until all are done or a part must wait.
pub async fn make<T: Provisioner>(by: &T) -> Result<Progress<T::Part>, Trouble> {
    walk(by, to_have).await
}

/// Deletes parts until all are gone or a part must wait.
pub async fn remove<T: Provisioner>(by: &T) -> Result<Progress<T::Part>, Trouble> {
    walk(by, to_lose).await
}

async fn walk<T: Provisioner>(
    by: &T,
    next: impl Fn(&[(T::Part, Found)]) -> Step<T::Part>,
) -> Result<Progress<T::Part>, Trouble> {
    let mut steps = 0;
    loop {
        let found = by.observe().await?;
        match next(&found) {
            Step::Done => return Ok(Progress::Done),
            Step::Wait(part) => return Ok(Progress::Waits(part)),
            Step::Blocked(part) => return Ok(Progress::Blocked(part)),
            _ if steps >= MOST * found.len() => return Ok(Progress::Restless),
            Step::Create(part) => by.create(part).await?,
            Step::Update(part, mark) => by.update(part, mark).await?,
            Step::Delete(part, mark) => by.delete(part, mark).await?,
        }
        steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::objects::Version;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Parts in memory. After `writes` writes every further write fails, as if the process was killed.
    struct Memory {
        parts: Mutex<BTreeMap<u8, bool>>,
        writes: Mutex<usize>,
    }

    impl Memory {
        fn new(parts: &[(u8, bool)], writes: usize) -> Self {
            Self { parts: Mutex::new(parts.iter().copied().collect()), writes: writes.into() }
        }

        fn write(&self, edit: impl FnOnce(&mut BTreeMap<u8, bool>)) -> Result<(), Trouble> {
            let mut left = self.writes.lock().unwrap();
            if *left == 0 {
                return Err(Trouble("killed".to_owned()));
            }
            *left -= 1;
            edit(&mut self.parts.lock().unwrap());
            Ok(())
        }

        fn parts(&self) -> Vec<(u8, bool)> {
            self.parts.lock().unwrap().clone().into_iter().collect()
        }
    }

    impl Provisioner for Memory {
        type Part = u8;

        async fn observe(&self) -> Result<Vec<(u8, Found)>, Trouble> {
            let parts = self.parts.lock().unwrap();
            let mark = Mark { uid: "u".into(), version: Version("1".into()) };
            let found = |part| match parts.get(&part) {
                None => Found::Missing,
                Some(true) => Found::Same(mark.clone()),
                Some(false) => Found::Different(mark.clone()),
            };
            Ok((0..4).map(|part| (part, found(part))).collect())
        }

        async fn create(&self, part: u8) -> Result<(), Trouble> {
            self.write(|parts| _ = parts.insert(part, true))
        }

        async fn update(&self, part: u8, _: Mark) -> Result<(), Trouble> {
            self.write(|parts| _ = parts.insert(part, true))
        }

        async fn delete(&self, part: u8, _: Mark) -> Result<(), Trouble> {
            self.write(|parts| _ = parts.remove(&part))
        }
    }

    const ALL: [(u8, bool); 4] = [(0, true), (1, true), (2, true), (3, true)];

    #[tokio::test]
    async fn wherever_it_was_killed_the_next_one_makes_or_removes_the_rest() {
        for writes in 0..4 {
            let memory = Memory::new(&[(1, false)], writes);
            assert!(make(&memory).await.is_err());
            *memory.writes.lock().unwrap() = usize::MAX;
            assert_eq!(make(&memory).await, Ok(Progress::Done));
            assert_eq!(memory.parts(), ALL);
            *memory.writes.lock().unwrap() = writes;
            assert!(remove(&memory).await.is_err());
            *memory.writes.lock().unwrap() = usize::MAX;
            assert_eq!(remove(&memory).await, Ok(Progress::Done));
            assert_eq!(memory.parts(), []);
        }
    }

    #[tokio::test]
    async fn where_all_is_as_it_should_be_nothing_is_written() {
        assert_eq!(make(&Memory::new(&ALL, 0)).await, Ok(Progress::Done));
        assert_eq!(remove(&Memory::new(&[], 0)).await, Ok(Progress::Done));
    }
}
