//! Enums of the API whose values have the names of those of the ledger: one list of names for each.

use reveille_cluster::backup::BackupPhase;
use reveille_cluster::smtp::Fix;
use reveille_ledger::RecipientState;
use reveille_ledger::audit::RefusalKind;
use reveille_ledger::calendar::{DstGap, DstOverlap};
use reveille_ledger::canary::CanaryVerdict;
use reveille_ledger::claim_history::DoubtReason;
use reveille_ledger::command::{Decider, OpeningCause, RefusalEffect, ReleaseReason, Unopened, UnopenedReason};
use reveille_ledger::forecast::ForecastLimit;
use reveille_ledger::policy::{CatchUp, InDoubt, Overlap};
use reveille_proto::admin::v1;

/// An enum that the API has too.
pub trait OnWire {
    /// The enum of the API.
    type Wire;

    /// Returns the value of the API.
    fn wire(self) -> Self::Wire;
}

/// An enum that requests have.
pub trait OfWire: Default {
    /// Reads the value of a request. Nothing means the default. `None`: this build does not know the value.
    fn of_wire(number: i32) -> Option<Self>;
}

/// `read`: requests have the enum. `shown`: only responses have it.
macro_rules! on_wire {
    ($($ways:ident $own:ident => $wire:ident { $($value:ident),* })*) => {$(
        impl OnWire for $own {
            type Wire = v1::$wire;

            fn wire(self) -> v1::$wire {
                match self {
                    $($own::$value => v1::$wire::$value,)*
                }
            }
        }
        of_wire!($ways $own $wire $($value)*);
    )*};
}

macro_rules! of_wire {
    (shown $($rest:ident)*) => {};
    (read $own:ident $wire:ident $($value:ident)*) => {
        impl OfWire for $own {
            fn of_wire(number: i32) -> Option<$own> {
                Some(match v1::$wire::try_from(number).ok()? {
                    v1::$wire::Unspecified => $own::default(),
                    $(v1::$wire::$value => $own::$value,)*
                })
            }
        }
    };
}
on_wire! {
    read CatchUp => CatchUp { One, All, None }
    read DstGap => DstGap { After, Shift, Skip }
    read DstOverlap => DstOverlap { First, Second, Both }
    read InDoubt => InDoubt { Hold, Resend, AssumeSent }
    read Overlap => Overlap { BufferOne, Skip, Allow, CancelOther }
    shown BackupPhase => BackupPhase { Copy, Verify }
    shown CanaryVerdict => CanaryVerdict { Undecided, Passed, Held, Overruled }
    shown Decider => Decider { Operator, Policy }
    shown DoubtReason => DoubtCause { NoAnswer, OwnerLost, Begun, NoJournal, Restored }
    shown Fix => RelayFix {
        TlsName, Ca, CaFile, ImplicitTls, StartTls, LoginAfterStartTls, NoLogin, Reference, Relay
    }
    shown ForecastLimit => ForecastBound { NoRelay, Nothing, Relays, LateRates, Tenant, WarmUp }
    shown OpeningCause => RunCause { Due, CatchUp, Trigger, Backfill, Test, Message }
    shown RecipientState => RecipientState {
        Pending, Claimed, Sent, Assumed, Dead, Suppressed, Expired, Cancelled, InDoubt
    }
    shown RefusalKind => AuditRefusal {
        WrongEpoch, TimeWentBack, TimeLeaps, ClocksDisagree, OldIncarnation, NoSuchSchedule, NoSuchRun, NoSuchRelay, NameTaken, RequestReused, StalePlan, NotDue, FiredThrough, NotActive, OwnerGone, NothingPending, TooLarge, NotPossible, RelayNameTaken, RunOpen, InsideGap, NoSuchAudience, AudienceNameTaken, AudienceUsed, NoSuchCampaign, CampaignIs, OfCampaign, LaunchedBefore, AudienceOfCampaign, CampaignNameTaken, SentBefore, AtConcurrency, CapUsedUp, CanaryHeld, TokenNotValid, NotPermitted, NoSuchToken, TokenIdTaken, RestoreNotAccepted, MaybeSent, RecipientClaimed, NoSuchTemplate, Changed, TemplateUsed
    }
    shown RefusalEffect => RefusalEffect { Dead, BackOff, NextWave, MayPauseRun, CountAttempt }
    shown ReleaseReason => ReleaseReason {
        Busy, RateLimited, SessionEnded, NotInClaim, RunPaused, RunEnded, PastDeadline, LeaseOver, JournalFailed, Stopping,
        OwnerCrashed, OwnerCrashedComposing
    }
    shown UnopenedReason => UnopenedReason {
        Coalesced, NoCatchUp, TooLate, DoesNotExist, Edited, Overlap, Superseded, OpenedBefore, Restored
    }
    shown Unopened => HistoryOutcome { Coalesced, Skipped, Expired, Refused }
}
