//! The cookies of a request. HTTP/2 lets a client send several cookie fields, so that each can be
//! compressed alone; HTTP/1.1 allows one field, and many members read only one of several. Pure
//! functions over request heads.

use http::HeaderValue;
use http::header::COOKIE;
use pingora_core::Result;
use pingora_http::RequestHeader;

/// The value of a cookie that a client sent.
pub(super) fn named<'a>(request: &'a RequestHeader, name: &str) -> Option<&'a str> {
    request
        .headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// Joins several cookie fields into one with `; ` (RFC 9113, 8.2.3), for a member that speaks HTTP/1.1.
pub(super) fn join(request: &mut RequestHeader) -> Result<()> {
    let fields = request.headers.get_all(COOKIE);
    if fields.iter().nth(1).is_none() {
        return Ok(());
    }
    let mut joined = Vec::new();
    for field in fields.iter().filter(|field| !field.is_empty()) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(field.as_bytes());
    }
    // Only bytes that a header value may have were joined.
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        request.insert_header(COOKIE, joined)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[&[u8]]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        for field in fields {
            request.append_header("cookie", *field).unwrap();
        }
        request
    }

    fn joined(fields: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut request = request(fields);
        join(&mut request).unwrap();
        request.headers.get_all(COOKIE).iter().map(|it| it.as_bytes().to_vec()).collect()
    }

    #[test]
    fn several_fields_become_one_in_their_order_and_one_stays_as_it_is() {
        assert_eq!(joined(&[]), Vec::<Vec<u8>>::new());
        assert_eq!(joined(&[b"a=1;b=2"]), [b"a=1;b=2".to_vec()]);
        assert_eq!(joined(&[b"a=1", b"", b"b=2; c=3"]), [b"a=1; b=2; c=3".to_vec()]);
        assert_eq!(joined(&[b"a=\xff", b"b=2"]), [b"a=\xff; b=2".to_vec()]);
    }

    #[test]
    fn a_cookie_is_found_in_whichever_field_it_is() {
        let request = request(&[b"a=1; bb=2", b"b=3"]);
        assert_eq!(
            ["a", "b", "bb", "c"].map(|name| named(&request, name)),
            [Some("1"), Some("3"), Some("2"), None]
        );
    }
}
