//! Formats an error with all its causes on one line: the outermost error seldom says what is wrong. Code
//! that logs an error of the client uses it.

use std::error::Error;

/// The error and its causes, each once.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        next = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn causes_follow_each_other_and_what_was_said_is_not_said_again() {
        let layer = |text, source| Some(Box::new(Layer { text, source }));
        let refused = layer("Connection refused (os error 111)", None);
        let inner = layer("client error (Connect)", layer("tcp connect error", refused));
        let outer = Layer { text: "cannot list: client error (Connect)", source: inner };
        let expected = "cannot list: client error (Connect): tcp connect error: Connection refused (os error 111)";
        assert_eq!(causes(&outer), expected);
    }
}
