//! Formats an error with all its causes on one line: the outermost error seldom says what is wrong. Code
//! that logs an error of the client uses it.

use kube::core::Status;
use std::error::Error;

/// The text of one error alone. An answer of the API is told in the API's words: the client adds Rust values to them.
pub fn own_text(error: &(dyn Error + 'static)) -> String {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|it| &**it);
    let status = match error.downcast_ref::<kube::Error>().or_else(boxed) {
        Some(kube::Error::Api(status)) => Some(&**status),
        _ => error
            .downcast_ref::<Status>()
            .or_else(|| error.downcast_ref::<Box<Status>>().map(|it| &**it)),
    };
    match status {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => error.to_string(),
    }
}

/// The error and its causes, each once.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut told = own_text(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let text = own_text(cause);
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

    #[test]
    fn an_answer_of_the_api_is_told_in_its_words_alone() {
        let status = Status { message: "no room".to_owned(), code: 403, ..Status::default() };
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(causes(&error), "no room");
        assert_eq!(causes(&Box::new(error)), "no room");
    }
}
