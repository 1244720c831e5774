//! Error text: an error and its causes in one line.

use std::error::Error;

/// The error and each of its causes: `outer: inner: innermost`.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// The last cause of the error, or the error itself if it has none.
///
/// HTTP and QUIC libraries put the address into every outer text and the reason into the last one.
pub fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("state.json")]
    struct Middle(#[source] io::Error);

    #[test]
    fn causes_follow_in_order() {
        let error = Outer(Middle(io::Error::other("disk is full")));
        assert_eq!(
            with_causes(&error),
            "cannot start: state.json: disk is full"
        );
        assert_eq!(innermost(&error).to_string(), "disk is full");
    }

    #[test]
    fn error_without_cause_stands_alone() {
        let error = io::Error::other("disk is full");
        assert_eq!(with_causes(&error), "disk is full");
        assert_eq!(innermost(&error).to_string(), "disk is full");
    }
}
