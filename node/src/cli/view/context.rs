//! Output of `context …`, `login` and `cluster init`.

use super::{Cell, Serialize, View, card};

/// Number of digits of a fingerprint in a table.
const DIGITS: usize = 16;

/// A cluster that this user knows. The token is never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextView {
    /// Name of the context.
    pub name: String,
    /// True if commands use it.
    pub current: bool,
    /// Admin addresses.
    pub endpoints: Vec<String>,
    /// SHA-256 of the authority's certificate.
    pub fingerprint: String,
    /// True if there is a token.
    pub has_token: bool,
    /// The authority's certificate, as PEM.
    pub ca: String,
}

impl View for ContextView {
    const NOUN: &'static str = "contexts";
    const COLUMNS: &'static [&'static str] = &["NAME", "IN USE", "ENDPOINTS", "AUTHORITY", "TOKEN"];

    fn cells(&self) -> Vec<Cell> {
        let yes = |is: bool| Cell::or_dash(is.then_some("yes"));
        vec![
            self.name.as_str().into(),
            yes(self.current),
            self.endpoints.join(", ").into(),
            self.fingerprint.chars().take(DIGITS).collect::<String>().into(),
            yes(self.has_token),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let pairs = vec![
            ("context", self.name.as_str().into()),
            ("in use", yes(self.current).into()),
            ("endpoints", self.endpoints.join(", ").into()),
            ("authority", self.fingerprint.as_str().into()),
            ("token", yes(self.has_token).into()),
        ];
        card(pairs, paint)
    }
}
