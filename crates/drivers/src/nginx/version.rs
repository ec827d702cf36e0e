//! Decides whether an nginx can be driven, and what it can do. Pure; the driver calls it at its start.

use super::render::Stream;
use std::path::{Path, PathBuf};

/// The oldest nginx that refuses handshakes for names without a certificate, and takes the place of its log as an
/// argument.
const OLDEST: (u32, u32) = (1, 20);

/// The abilities of an nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: String,
    pub(super) stream: Stream,
}

/// The abilities of the nginx with this output of `nginx -V`, or why it cannot be driven.
pub(super) fn usable(printed: &str, exists: impl Fn(&Path) -> bool) -> Result<Found, String> {
    let version = printed.split_once("nginx version: ").and_then(|(_, rest)| {
        let version = rest.split_whitespace().next()?;
        Some(version.split_once('/')?.1)
    });
    let version = version.ok_or_else(|| format!("no version in {:?}", printed.lines().next()))?;
    let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        return Err(format!("nginx {version} is too old; use 1.20 or newer"));
    }
    let options: Vec<_> = printed.split_whitespace().collect();
    for module in ["http_ssl_module", "http_v2_module"] {
        if !options.contains(&&*format!("--with-{module}")) {
            return Err(format!("this nginx has no {module}"));
        }
    }
    let folder = options.iter().find_map(|it| it.strip_prefix("--modules-path="));
    let module = folder.map(|it| PathBuf::from(it).join("ngx_stream_module.so"));
    let stream = match module {
        _ if options.contains(&"--with-stream") => Stream::BuiltIn,
        Some(module) if exists(&module) => Stream::Module(module),
        _ => Stream::Missing,
    };
    Ok(Found { version: version.to_owned(), stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(version: &str, options: &str) -> String {
        format!(
            "nginx version: nginx/{version}\nbuilt with OpenSSL 3.0.20\nconfigure arguments: \
             --modules-path=/usr/lib/nginx/modules --with-http_ssl_module --with-http_v2_module {options}\n"
        )
    }

    #[test]
    fn it_is_found_out_whether_and_how_streams_are_carried() {
        let module = Path::new("/usr/lib/nginx/modules/ngx_stream_module.so");
        let stream = |options: &str, there: bool| {
            usable(&printed("1.22.1", options), |path| there && path == module).map(|it| it.stream)
        };
        assert_eq!(stream("--with-stream=dynamic", true), Ok(Stream::Module(module.into())));
        assert_eq!(stream("--with-stream=dynamic", false), Ok(Stream::Missing));
        assert_eq!(stream("--with-stream", false), Ok(Stream::BuiltIn));
        assert_eq!(stream("", false), Ok(Stream::Missing));
    }

    #[test]
    fn an_nginx_that_cannot_do_what_is_needed_is_told_apart() {
        let fails = |printed: &str| usable(printed, |_| true).unwrap_err();
        assert_eq!(fails(&printed("1.18.0", "")), "nginx 1.18.0 is too old; use 1.20 or newer");
        let without = printed("1.22.1", "").replace("--with-http_v2_module", "");
        assert_eq!(fails(&without), "this nginx has no http_v2_module");
        assert!(usable("", |_| true).is_err());
    }
}
