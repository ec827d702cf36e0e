//! HAProxy's version, and what HAProxy can do in which version. The driver and the renderer ask it;
//! pure.

/// The first two numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

/// The oldest HAProxy that takes servers by command without its experimental mode.
const OLDEST: Version = Version(2, 6);

impl Version {
    /// A version as HAProxy writes it.
    pub fn read(written: &str) -> Self {
        let mut numbers = written.split(['.', '-']).map(|it| it.parse::<u32>().unwrap_or(0));
        Self(numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    /// Whether it can add backends while it runs.
    pub fn adds_backends(self) -> bool {
        self >= Self(3, 4)
    }

    /// Whether it can limit bandwidth.
    pub fn shapes_bandwidth(self) -> bool {
        self >= Self(2, 7)
    }
}

/// The version in the output of `haproxy -v`, or why it cannot be driven.
pub(super) fn usable(printed: &str) -> Result<&str, String> {
    let version = printed.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let version = version.ok_or_else(|| format!("no version in {:?}", printed.lines().next()))?;
    is_usable(version)?;
    Ok(version)
}

/// Whether a HAProxy of this version can be driven, or why not.
pub(super) fn is_usable(version: &str) -> Result<(), String> {
    if Version::read(version) < OLDEST {
        return Err(format!(
            "HAProxy {version} cannot add servers while it runs; use 2.6 or newer"
        ));
    }
    Ok(())
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
        assert_eq!(["2.5.9", "", "2.6.12"].map(|it| is_usable(it).is_ok()), [false, false, true]);
        let can = |version| {
            let version = Version::read(version);
            (version.shapes_bandwidth(), version.adds_backends())
        };
        assert_eq!(can("2.6.12"), (false, false));
        assert_eq!(can("2.8.3-1"), (true, false));
        assert_eq!(can("3.4.0"), (true, true));
    }
}
