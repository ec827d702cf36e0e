//! Tasks by the name of their object. It stops tasks and starts none; callers follow the objects by a
//! watch.

use std::collections::BTreeMap;

/// Stops and forgets the tasks whose object was not in a list. A task that has already ended is
/// forgotten, too: a later object with its name gets a new task.
pub(crate) fn sweep<T, E>(
    running: &mut BTreeMap<String, T>,
    seen: &[String],
    stop: impl Fn(&T) -> Result<(), E>,
) {
    running.retain(|name, task| {
        let keeps = seen.contains(name);
        if !keeps {
            // A task that has ended ignores this.
            let _ = stop(task);
        }
        keeps
    });
}

#[cfg(test)]
mod tests {
    use super::sweep;
    use std::collections::BTreeMap;
    use tokio::sync::watch;

    #[test]
    fn what_was_not_seen_is_stopped_and_forgotten_even_if_it_has_ended() {
        let (stop, stopped) = watch::channel(false);
        let (ended, _) = watch::channel(false);
        let (kept, goes_on) = watch::channel(false);
        let all = [("runs", stop), ("ended", ended), ("kept", kept)];
        let mut running: BTreeMap<_, _> =
            all.into_iter().map(|(name, stop)| (name.to_owned(), stop)).collect();
        sweep(&mut running, &["kept".to_owned()], |stop| stop.send(true));
        assert_eq!(running.keys().collect::<Vec<_>>(), ["kept"]);
        assert!(*stopped.borrow() && !*goes_on.borrow());
    }
}
