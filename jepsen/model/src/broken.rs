//! The rules that can be left out, one at a time, to prove that the search finds the violation.
//!
//! A model that accepts everything proves nothing. Each variant names the rule that it leaves out, and
//! `tests/model/broken_rules.rs` names the property that must fail without this rule. Code calls [`Rules::enforces`] only
//! where it applies the rule, so the list is also a map from rules to code.

/// One rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// P10: a claim belongs to a node, not to one incarnation of it. A process that starts works on the claims
    /// that it finds in the state as it is replayed.
    NoIncarnation,
    /// P4: `apply` grants the slice as it was proposed, also recipients that are no longer pending.
    ClaimWithoutPending,
    /// P4: `apply` grants a claim to an incarnation that is no longer current.
    ClaimForAnyIncarnation,
    /// P13: `apply` accepts a claim of another epoch.
    ClaimOfAnyEpoch,
    /// P13: `apply` accepts a revocation of another epoch.
    RevokeOfAnyEpoch,
    /// P9: a lease starts when the claim is applied, not when the granted request was sent.
    LeaseFromApply,
    /// P9: a leader grants leases without the acknowledgement of a quorum.
    GrantWithoutQuorum,
    /// P9: a grant does not name the index that the node must have applied.
    GrantWithoutFloor,
    /// P9: a leader grants while its revocation of the node's claim is under way.
    GrantDuringRevocation,
    /// P9: a claim is revoked by its age, while the lease of its owner may run.
    RevokeByAge,
    /// P9: a new leader assumes as soon as it leads that former leases have ended.
    NewLeaderDoesNotWait,
    /// P9: a leader assumes that a lease has ended when ledger time has moved.
    LeaseByLedgerTime,
    /// P14: recipients that a lost owner had claimed are pending again, and are sent again.
    Resend,
    /// P4: a negative outcome moves recipients that are no longer in its claim.
    SettleWithoutClaim,
    /// P14: an acceptance that comes again is counted again.
    CountEachRepeat,
    /// P5: the final dot goes out before `handoff` is in the journal.
    BeginAfterFinalDot,
    /// P11: a journal that a power cut destroyed is read as one in which nothing was begun.
    TrustLostJournal,
    /// P15: an opt-out is answered as soon as it is applied, without asking the nodes.
    AnswerBeforeBarrier,
    /// P15: a leader whose state names another epoch answers anyway.
    BarrierOfAnyEpoch,
    /// P15: only handoffs of running processes are named as crossed.
    NameOnlyTheLiving,
    /// P15: the leader names handoffs that no process lists by its own state, which may be older than the
    /// state by which a process removed them.
    NameByAnOlderState,
    /// P4: `apply` grants in a run that is paused, ended or past its deadline.
    ClaimOfStoppedRun,
    /// P5: the gate does not check if the run is paused or ended.
    GateIgnoresTheRun,
    /// P5: the gate does not check the deadline.
    GateIgnoresTheDeadline,
    /// P15: a recipient that returns to a cancelled run is pending.
    CancelForgetsReturned,
    /// P15: a recipient of a cancelled run is sent again.
    ResendOfCancelledRun,
    /// P15: a run that was paused at its deadline is not paused when it opens again.
    ExpiryForgetsPause,
    /// P16: the deadline also moves claimed recipients.
    ExpireClaimed,
    /// P4: a refusal counts as an attempt although its recipient has left the claim.
    CountEachRefusal,
    /// P4: the last attempt does not make any recipient dead.
    RetryForEver,
    /// P4: a requeue moves any recipient, dead or not.
    RequeueNotDead,
    /// P14: a claimed recipient is sent again, although its owner may pass the gate.
    DecideClaimed,
    /// P14: a decision moves any recipient that has left a claim, in doubt or not.
    DecideEnded,
    /// P14: resends are not counted.
    ResendUncounted,
    /// P14: assumed recipients count as sent.
    AssumedIsSent,
    /// P14: evidence that a recipient assumed was not handed off is counted and does not move it.
    AssumedNeverReturns,
    /// P18: `apply` accepts an entry whose time is below ledger time.
    TimeGoesBack,
    /// P18: `apply` accepts an entry whose time is far above ledger time.
    TimeLeaps,
    /// P18: an epoch begins with the time on which the clocks agree, even if that is below ledger time.
    EpochLowersTime,
    /// P21: what is pending in a backup is pending after its restore.
    PendingAfterRestore,
    /// P21: a policy decides a doubt that a restore made, or that is older.
    PolicyDecidesOlder,
    /// P21: the calendar opens instants of the time before the acceptance.
    InstantFiresAgain,
    /// P21: the calendar opens instants of the time before the backup that had not opened by then.
    OlderInstantFires,
    /// P21: a restored cluster sends before its acceptance.
    RestoreWithoutHold,
}

/// The rules in force: all rules, or all rules except one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rule that is left out, if any.
    pub broken: Option<BrokenRule>,
}

impl Rules {
    /// Returns true if the rule that this variant leaves out is in force.
    pub fn enforces(self, rule: BrokenRule) -> bool {
        self.broken != Some(rule)
    }
}
