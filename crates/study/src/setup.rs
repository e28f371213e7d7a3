//! The set-up of an experiment, in words.

/// How a parameter of a reproduction came by its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The paper says it.
    Stated,
    /// It was fitted to published cells, which are then no predictions.
    Fitted,
    /// The paper does not say it, and a plausible value was taken.
    Assumed,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Fitted => "fitted",
            Self::Assumed => "assumed",
        }
    }
}

/// One parameter of a reproduction's set-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// What it is, such as `wireless rate`.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
    /// How it came by its value.
    pub kind: Kind,
    /// Where the paper says it, what it was fitted to, or why it was assumed.
    pub reason: String,
}

/// The set-up of a reproduction, in words: what a reader has to know to judge its results.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Setup {
    /// Its parameters.
    pub parameters: Vec<Parameter>,
}

impl Setup {
    /// The parameters of one kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |parameter| parameter.kind == kind)
    }
}
