//! Output of `token …`.

use reveille_proto::admin::v1::{GetOwnTokenResponse, Token};

use super::{Cell, Tone, View, card, pairs, word};

impl View for Token {
    const NAME: &'static str = "id";
    const NOUN: &'static str = "tokens";
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "ROLES", "TENANTS", "EXPIRES", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let tenants = if self.all_tenants { "all".to_owned() } else { self.tenants.join(", ") };
        let state = match (self.valid, &self.revoke_time) {
            (true, _) => Cell::toned("valid", Tone::Plain),
            (false, Some(_)) => Cell::toned("revoked", Tone::Dim),
            (false, None) => Cell::toned("expired", Tone::Dim),
        };
        let roles: Vec<String> = self.roles().map(|role| word(role.as_str_name())).collect();
        vec![
            self.id.as_str().into(),
            self.name.as_str().into(),
            roles.join(", ").into(),
            tenants.into(),
            Cell::at(self.expire_time.as_ref()),
            state,
        ]
    }
}

/// `token` is missing if the cluster asks for no token.
impl View for GetOwnTokenResponse {
    fn name(&self) -> String {
        self.token.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let none = || vec![("token".to_owned(), "the node asks for none".into())];
        let mut pairs = self.token.as_ref().map_or_else(none, pairs);
        pairs.insert(0, ("cluster".to_owned(), self.cluster.as_str().into()));
        card(pairs, paint)
    }
}
