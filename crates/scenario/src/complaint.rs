//! What is wrong with a scenario whose keys and values can each be read.

/// Things that do not hold, each with the path to where the file says so.
#[derive(Default, Debug)]
pub(crate) struct Complaints(Vec<Complaint>);

/// One thing that does not hold.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) path: Vec<String>,
    pub(crate) message: String,
    pub(crate) remedy: Option<String>,
}

impl Complaints {
    /// Adds one; no remedy is an empty text.
    pub(crate) fn add(
        &mut self,
        path: &[&str],
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let remedy = remedy.into();
        self.0.push(Complaint {
            path: path.iter().map(ToString::to_string).collect(),
            message: message.into(),
            remedy: (!remedy.is_empty()).then_some(remedy),
        });
    }

    /// Adds one that both directions of a link may share, once.
    pub(crate) fn add_once(&mut self, path: &[&str], message: String, remedy: &str) {
        if !self.0.iter().any(|c| c.path == path && c.message == message) {
            self.add(path, message, remedy);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_list(self) -> Vec<Complaint> {
        self.0
    }
}
