//! The name that somebody may have meant: of those that exist, the one with the fewest slips between the two. Messages
//! about names that do not exist call it.

/// The nearest of the names that exist. None: none is near, so that naming one would only mislead.
pub fn nearest<'a>(name: &str, exist: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let near =
        exist.into_iter().map(|it| (slips(name, it), it)).filter(|(slips, _)| *slips <= most);
    near.min().map(|(_, it)| it)
}

/// How many letters are added, left out or wrong, or stand in the place of their neighbour.
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // The rows of the table for the letters of `a` so far, the latest last.
    let mut rows: [Vec<usize>; 2] = [Vec::new(), (0..=b.len()).collect()];
    for (i, x) in a.iter().enumerate() {
        let [older, old] = &rows;
        let mut new = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let changed = old.get(j).copied().unwrap_or_default() + usize::from(x != y);
            let left_out = old.get(j + 1).copied().unwrap_or_default() + 1;
            let added = new.get(j).copied().unwrap_or_default() + 1;
            let swapped = (i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x))
                .then(|| older.get(j - 1).copied().unwrap_or_default() + 1);
            new.push(changed.min(left_out).min(added).min(swapped.unwrap_or(usize::MAX)));
        }
        let [_, old] = rows;
        rows = [old, new];
    }
    let [_, last] = rows;
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_with_the_fewest_slips_is_meant_and_none_that_is_far() {
        let exist = ["edge", "edge-eu", "bronze"];
        for (name, meant) in [
            ("egde", Some("edge")),
            ("edg", Some("edge")),
            ("edge-ue", Some("edge-eu")),
            ("bronce", Some("bronze")),
            ("nosuch", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, exist), meant, "{name}");
        }
        assert_eq!(nearest("a", []), None);
    }
}
