//! The origin of an entry, as the node that proposes it states.

use serde::{Deserialize, Serialize};

use crate::model::{Rights, TokenId};

/// Who wants the command of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// The cluster itself: its leader or one of its nodes.
    System,
    /// A caller of a listener that asks for no token.
    Insecure,
    /// The owner of a token, with what the command needs.
    Operator {
        /// The token.
        token: TokenId,
        /// The rights that the token must have.
        needs: Rights,
        /// The tenant that the token must reach; `None`: all tenants.
        tenant: Option<String>,
    },
    /// A user of a node's machine, over its socket.
    Local,
}
