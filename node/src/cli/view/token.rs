//! Output of `token …`.

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::{Row, View, some};
use crate::cli::instant::text;

view! {
    /// A token, without its secret.
    pub struct TokenView of v1::Token as token {
        id: String,
        name: String,
        roles: Vec<String> = token.roles.clone(),
        /// Null for all tenants.
        tenants: Option<Vec<String>> = (!token.all_tenants).then(|| token.tenants.clone()),
        created_at: Option<String> = text(token.created_at.as_ref()),
        /// Null if it does not expire.
        expires_at: Option<String> = text(token.expires_at.as_ref()),
        /// Null if it was not revoked.
        revoked_at: Option<String> = text(token.revoked_at.as_ref()),
        /// Id of the token that created it; null if a node did, or a caller without a token.
        created_by: Option<String> = some(token.created_by.clone()),
        valid: bool,
    }
}

view! {
    /// A token that was created now.
    pub struct NewTokenView of v1::CreateTokenResponse as created {
        /// The token as callers send it: a secret.
        secret: String,
        token: TokenView,
    }
}

view! {
    /// The token of the caller.
    pub struct OwnTokenView of v1::GetOwnTokenResponse as own {
        /// Id of the cluster.
        cluster: String,
        /// Null if the cluster asks for no token.
        token: Option<TokenView>,
    }
}

impl View for TokenView {
    fn name(&self) -> String {
        self.id.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(self.pairs().iter().map(|(name, cell)| (name.as_str(), cell.clone())).collect(), paint)
    }
}

impl TokenView {
    fn pairs(&self) -> Vec<(String, Cell)> {
        TokenView::COLUMNS.iter().map(|column| column.to_lowercase()).zip(self.cells()).collect()
    }
}

impl View for OwnTokenView {
    fn name(&self) -> String {
        self.token.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let none = || vec![("token".to_owned(), Cell::from("the node asks for none"))];
        let mut pairs = self.token.as_ref().map_or_else(none, TokenView::pairs);
        pairs.insert(0, ("cluster".to_owned(), self.cluster.as_str().into()));
        card(pairs.iter().map(|(name, cell)| (name.as_str(), cell.clone())).collect(), paint)
    }
}

impl View for NewTokenView {
    fn name(&self) -> String {
        self.secret.clone()
    }

    fn text(&self, paint: bool) -> String {
        format!("{}\n\n{}", self.token.text(paint), self.secret)
    }
}

impl Row for TokenView {
    const NOUN: &'static str = "tokens";
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "ROLES", "TENANTS", "EXPIRES", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let tenants = self.tenants.as_ref().map_or_else(|| "all".to_owned(), |tenants| tenants.join(", "));
        let state = match (self.valid, &self.revoked_at) {
            (true, _) => Cell::toned("valid", Tone::Plain),
            (false, Some(_)) => Cell::toned("revoked", Tone::Dim),
            (false, None) => Cell::toned("expired", Tone::Dim),
        };
        vec![
            self.id.as_str().into(),
            self.name.as_str().into(),
            self.roles.join(", ").into(),
            tenants.into(),
            Cell::or_dash(self.expires_at.as_deref()),
            state,
        ]
    }
}
