//! Data types of the replicated state, one subject in each file. They use no clock, no random numbers and no I/O.
//!
//! All other folders of the crate except `calendar` depend on this one. It depends only on `calendar`, `storage` (forms
//! and tables), `index`, `fingerprint` and `injected_bugs`.

/// Declares an enum of variants without details, each with its word.
macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Its word.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}

pub mod access;
pub mod address;
pub mod archive;
pub mod audit;
pub mod backup;
pub mod bitmap;
pub mod bounce_breaker;
pub mod campaign;
pub mod canary;
pub mod causes;
pub mod claim;
pub mod claim_history;
pub mod closed_claims;
pub mod content;
pub mod crash_backoff;
pub mod deferral;
pub mod enhanced_code;
pub mod erased;
pub mod etag;
pub mod events;
pub mod ids;
pub mod impossible;
pub mod instant_range;
pub mod labels;
pub mod ledger;
pub mod limits;
pub mod node;
pub mod page;
pub mod policy;
pub mod pool;
pub mod recipient;
pub mod refusal;
pub mod relay;
pub mod reply;
pub mod restore;
pub mod run;
pub mod run_events;
pub mod schedule;
pub mod stored;
pub mod template;
pub mod tenant;
pub mod token;

pub use access::*;
pub use address::*;
pub use archive::*;
pub use audit::*;
pub use backup::*;
pub use bitmap::*;
pub use bounce_breaker::*;
pub use campaign::*;
pub use canary::*;
pub use causes::*;
pub use claim::*;
pub use claim_history::*;
pub use closed_claims::*;
pub use content::*;
pub use crash_backoff::*;
pub use deferral::*;
pub use enhanced_code::*;
pub use erased::*;
pub use etag::*;
pub use events::*;
pub use ids::*;
pub use impossible::*;
pub use instant_range::*;
pub use labels::*;
pub use ledger::*;
pub use limits::*;
pub use node::*;
pub use page::*;
pub use policy::*;
pub use pool::*;
pub use recipient::*;
pub use refusal::*;
pub use relay::*;
pub use reply::*;
pub use restore::*;
pub use run::*;
pub use run_events::*;
pub use schedule::*;
pub use stored::*;
pub use template::*;
pub use tenant::*;
pub use token::*;
