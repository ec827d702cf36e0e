//! What helps against a problem, and how its commands get the names of one object. A command stands in backticks; words in
//! capitals in it are names, which the caller fills in where they are known.

/// Who can remove the cause of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The owner of the Service, Ingress or claim.
    Tenant,
    /// The administrator of load balancers, pools and agents.
    Administrator,
}

/// What helps, and who can do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Who can do it.
    pub owner: Owner,
    /// What to do, in the imperative.
    pub what: &'static str,
}

/// Something that the owner of the object can do.
pub(super) const fn tenant(what: &'static str) -> Option<Remedy> {
    Some(Remedy { owner: Owner::Tenant, what })
}

/// Something that an administrator can do.
pub(super) const fn administrator(what: &'static str) -> Option<Remedy> {
    Some(Remedy { owner: Owner::Administrator, what })
}

/// A remedy with these names in its commands: `("NAME", "web")` takes the place of the word NAME. A name that a shell could
/// take for anything but one word is left out, because people copy commands: the capitals stay.
pub fn with_names(what: &str, names: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(what.len());
    for (index, part) in what.split('`').enumerate() {
        if index > 0 {
            out.push('`');
        }
        match index % 2 {
            0 => out.push_str(part),
            _ => fill(&mut out, part, names),
        }
    }
    out
}

/// The longest name that is filled in, as Kubernetes bounds names.
const LONGEST: usize = 253;

fn is_plain(name: &str) -> bool {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.' | ':' | '_' | '/');
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('-') && name.chars().all(plain)
}

fn fill(out: &mut String, command: &str, names: &[(&str, &str)]) {
    let mut rest = command;
    while let Some(start) = rest.find(|it: char| it.is_ascii_uppercase()) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|it: char| !it.is_ascii_uppercase()).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        out.push_str(before);
        let whole = !before.ends_with(|it: char| it.is_ascii_alphanumeric())
            && !after.starts_with(|it: char| it.is_ascii_alphanumeric());
        let name = names.iter().find(|(placeholder, _)| whole && *placeholder == word);
        out.push_str(name.map(|(_, name)| *name).filter(|it| is_plain(it)).unwrap_or(word));
        rest = after;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_get_the_names_of_the_object_and_other_words_stay() {
        let what = "look at NAME: `kubectl get KIND NAME -n NAMESPACE`, or `bowline explain lb/LB`";
        let names = [("KIND", "service"), ("NAME", "web"), ("NAMESPACE", "shop")];
        assert_eq!(
            with_names(what, &names),
            "look at NAME: `kubectl get service web -n shop`, or `bowline explain lb/LB`"
        );
        assert_eq!(
            with_names("`{\"name\":\"NAME\",\"RENAME\":\"NAMES\"}`", &names[1..2]),
            "`{\"name\":\"web\",\"RENAME\":\"NAMES\"}`"
        );
    }

    #[test]
    fn a_name_that_a_shell_would_not_take_as_one_word_is_not_filled_in() {
        for hostile in
            ["a; rm -rf /", "$(id)", "`id`", "a\nb", "-o", "'", "\"", "", &"x".repeat(254)]
        {
            assert_eq!(with_names("`get NAME`", &[("NAME", hostile)]), "`get NAME`", "{hostile:?}");
        }
    }
}
