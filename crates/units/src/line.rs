use alloc::string::{String, ToString};
use core::error::Error;

/// An error and what it comes of in one line, for people.
///
/// Errors here say themselves what they come of, and name it as their source too: what the line has
/// already is not said again.
pub fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("no such file")]
    struct Kernel;

    #[derive(Debug, Error)]
    enum Own {
        #[error("cannot read a.toml: {0}")]
        Read(#[from] Kernel),
        #[error("{0}")]
        Same(#[source] Kernel),
        #[error("no interception: {0}; try without")]
        Within(#[source] Kernel),
        #[error("starting")]
        Silent(#[source] Kernel),
    }

    #[derive(Debug, Error)]
    #[error("the mobile: {0}")]
    struct Above(#[source] Own);

    #[test]
    fn what_an_error_says_itself_is_not_said_again() {
        assert_eq!(one_line(&Own::Read(Kernel)), "cannot read a.toml: no such file");
        assert_eq!(one_line(&Own::Same(Kernel)), "no such file");
        let within = "no interception: no such file; try without";
        assert_eq!(one_line(&Own::Within(Kernel)), within);
        let above = one_line(&Above(Own::Read(Kernel)));
        assert_eq!(above, "the mobile: cannot read a.toml: no such file");
    }

    #[test]
    fn what_an_error_leaves_to_its_source_is_said() {
        assert_eq!(one_line(&Own::Silent(Kernel)), "starting: no such file");
        let above = one_line(&Above(Own::Silent(Kernel)));
        assert_eq!(above, "the mobile: starting: no such file");
    }
}
