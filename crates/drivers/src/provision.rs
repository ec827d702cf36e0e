//! Making what serves a load balancer that a class asks for, and removing it: one trait for every way of doing
//! it, in a cluster today, at a cloud's API later. What comes next is `bowline_core::provision`'s to say; here
//! that is carried out, a step at a time. The leader's writer calls it; it is safe to begin anew after every step.

use bowline_core::provision::{Found, Mark, Step, to_have, to_lose};
use std::fmt::Debug;
use std::future::Future;

/// One way of making what serves a load balancer. Names are made of the load balancer's, so whoever comes next
/// finds what was made before; each call may be repeated, and by two at once.
pub trait Provisioner: Sync {
    /// What it makes.
    type Part: Copy + Debug + Send + Sync;

    /// How every part is now, in the order of making.
    fn observe(&self) -> impl Future<Output = Result<Vec<(Self::Part, Found)>, Trouble>> + Send;

    /// Makes a part. That there is one already is no trouble: it is observed next.
    fn create(&self, part: Self::Part) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Changes a part to what it should be, if it still is this one. That it is not is no trouble.
    fn update(
        &self,
        part: Self::Part,
        mark: Mark,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Removes a part, if it still is this one. That it is not, or that there is none, is no trouble.
    fn delete(
        &self,
        part: Self::Part,
        mark: Mark,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Why a step was not taken, with what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Trouble(pub String);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<P> {
    /// All is as it should be.
    Done,
    /// This must be gone before it goes on.
    Waits(P),
    /// Something that is not ours has the name of this.
    Blocked(P),
    /// Every step that there is in one go was taken, and the parts are still not as they should be.
    Restless,
}

/// Steps in one go: each part made, mended once and mended again. Who changes parts as fast as we mend them
/// shall not keep us from everything else.
const MOST: usize = 3;

/// Makes all parts, as far as that goes now.
pub async fn make<T: Provisioner>(by: &T) -> Result<Progress<T::Part>, Trouble> {
    walk(by, to_have).await
}

/// Removes all parts, as far as that goes now.
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

    /// Parts in memory. After so many writes it is killed.
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
