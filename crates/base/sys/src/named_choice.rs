//! Trait for option values that users select by name.

/// An option of a few named values. Knows no command line: whoever has one lists [`NamedChoice::CHOICES`].
pub trait NamedChoice: Copy + PartialEq + Send + Sync + 'static {
    /// Name, value and one line of help.
    const CHOICES: &'static [(&'static str, Self, &'static str)];

    fn from_name(name: &str) -> Option<Self> {
        Self::CHOICES.iter().find(|(known, _, _)| *known == name).map(|(_, value, _)| *value)
    }

    fn name(self) -> &'static str {
        Self::CHOICES.iter().find(|(_, value, _)| *value == self).map_or("", |(name, _, _)| *name)
    }
}
