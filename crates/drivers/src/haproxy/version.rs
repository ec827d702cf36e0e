//! Which HAProxy can be driven.

/// The oldest HAProxy that can be told of servers without experiments.
const OLDEST: (u32, u32) = (2, 6);
/// The oldest HAProxy that can be told of backends while it runs.
const ADDS_BACKENDS: (u32, u32) = (3, 4);

/// The version in what `haproxy -v` prints, if it is new enough; else why not.
pub(super) fn usable(printed: &str) -> Result<&str, String> {
    let version = printed.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let version = version.ok_or_else(|| format!("no version in {:?}", printed.lines().next()))?;
    if numbers(version) < OLDEST {
        return Err(format!("HAProxy {version} cannot be told of servers while it runs; 2.6 can"));
    }
    Ok(version)
}

/// Whether a HAProxy of this version can be told of backends while it runs.
pub(super) fn adds_backends(version: &str) -> bool {
    numbers(version) >= ADDS_BACKENDS
}

fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|it| it.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_two_point_six_are_told_apart() {
        let printed =
            |version| format!("HAProxy version {version} 2026/10/17 - https://haproxy.org/\n");
        assert_eq!(usable(&printed("2.6.12-1+deb12u4")), Ok("2.6.12-1+deb12u4"));
        assert_eq!(usable(&printed("3.4-dev1")), Ok("3.4-dev1"));
        assert!(usable(&printed("2.4.1")).is_err());
        assert!(usable("").is_err());
        assert_eq!(
            ["2.6.12", "3.3.9", "3.4.0", "4.0"].map(adds_backends),
            [false, false, true, true]
        );
    }
}
