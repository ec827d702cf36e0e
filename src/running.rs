//! Tasks by the name of the object that each is for.

use std::collections::BTreeMap;

/// Stops and forgets those whose object was not seen in a list. One that has ended already is forgotten
/// too: a later object of its name gets a task of its own.
pub(crate) fn sweep<T, E>(
    running: &mut BTreeMap<String, T>,
    seen: &[String],
    stop: impl Fn(&T) -> Result<(), E>,
) {
    running.retain(|name, task| {
        let keeps = seen.contains(name);
        if !keeps {
            // Nobody hears it where the task has ended.
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
