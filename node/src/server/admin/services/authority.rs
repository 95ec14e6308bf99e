//! Rotates the certificate authority (P22), one step for each request. Any node can: it asks all members, and proposes
//! the step when they are ready.
//!
//! A node that joins after the entry of the first step gets both authorities with its certificate; one that joined
//! before is a member here. So no member is missed.

use std::time::Duration;

use reveille_ledger::command::{AuthorityStep, Command};
use reveille_ledger::ids::AuthorityId;
use reveille_ledger::{AuthorityRotation, AuthorityState, RotationPhase};
use reveille_proto::admin::v1::{
    self, AbortRotationRequest, AbortRotationResponse, AuthorityWait, AuthorityWaitReason, GetAuthorityRequest,
    GetAuthorityResponse, RotateAuthorityRequest, RotateAuthorityResponse, RotationStep,
};
use reveille_raft::tls::{NodeTls, TrustReport};

use crate::server::admin::{Admin, ApiResult, Call, error_texts};

/// Timeout for a member to say which authorities it trusts.
const REPORTED_WITHIN: Duration = Duration::from_millis(800);

/// What the ledger says, and what each member has done about it.
struct Progress {
    state: AuthorityState,
    members: Vec<MemberTrust>,
}

struct MemberTrust {
    name: String,
    /// `None`: it does not answer.
    report: Option<TrustReport>,
}

impl Progress {
    /// Returns why each member is not ready for the next step.
    fn waits_for(&self) -> Vec<AuthorityWait> {
        let late = |member: &MemberTrust| {
            let reason = self.why_late(member.report.as_ref())?;
            Some(AuthorityWait { member: member.name.clone(), reason: reason.into() })
        };
        self.members.iter().filter_map(late).collect()
    }

    fn why_late(&self, report: Option<&TrustReport>) -> Option<AuthorityWaitReason> {
        let Some(report) = report else { return Some(AuthorityWaitReason::Silent) };
        let trusts = |id| report.trusts.contains(&id);
        match self.state.rotation {
            Some(AuthorityRotation { next, phase: RotationPhase::Adding }) => {
                (!trusts(next)).then_some(AuthorityWaitReason::TrustsFormer)
            }
            Some(AuthorityRotation { next, phase: RotationPhase::Using }) => {
                (report.uses != next || !trusts(next)).then_some(AuthorityWaitReason::UsesFormer)
            }
            None => {
                let only = report.trusts == [self.state.present] && report.uses == self.state.present;
                (!only).then_some(AuthorityWaitReason::KnowsOther)
            }
        }
    }

    /// Returns true if no member has the authority of this rotation. It never comes: another one must be made.
    fn is_lost(&self, next: AuthorityId) -> bool {
        let lacks = |member: &MemberTrust| {
            member.report.as_ref().is_some_and(|report| !report.trusts.contains(&next) && report.uses != next)
        };
        self.members.iter().all(lacks)
    }

    /// Returns the next step of a rotation that is under way, if all members are ready for it.
    fn next_step(&self) -> Option<AuthorityStep> {
        match self.state.rotation? {
            AuthorityRotation { next, phase: RotationPhase::Adding } if self.is_lost(next) => {
                Some(AuthorityStep::Abort(next))
            }
            _ if !self.waits_for().is_empty() => None,
            AuthorityRotation { next, phase: RotationPhase::Adding } => Some(AuthorityStep::Use(next)),
            AuthorityRotation { next, phase: RotationPhase::Using } => Some(AuthorityStep::DropFormer(next)),
        }
    }

    fn shown(&self) -> v1::Authority {
        let step = match self.state.rotation.map(|rotation| rotation.phase) {
            None => RotationStep::Unspecified,
            Some(RotationPhase::Adding) => RotationStep::Adding,
            Some(RotationPhase::Using) => RotationStep::Using,
        };
        v1::Authority {
            fingerprint: self.state.present.to_string(),
            next_fingerprint: self.state.rotation.map(|rotation| rotation.next.to_string()).unwrap_or_default(),
            step: step.into(),
            waits_for: self.waits_for(),
        }
    }
}

/// Returns the authority, and how far its rotation is.
pub async fn get(admin: &Admin, _: GetAuthorityRequest, call: &Call) -> ApiResult<GetAuthorityResponse> {
    Ok(GetAuthorityResponse { authority: Some(admin.rotation(call).await?.shown()) })
}

/// Makes the next step of a rotation, if there is one that can be made.
pub async fn rotate(admin: &Admin, request: RotateAuthorityRequest, call: &Call) -> ApiResult<RotateAuthorityResponse> {
    let progress = admin.rotation(call).await?;
    let is_present = progress.state.present.to_string() == request.replaces;
    let step = match progress.state.rotation {
        Some(_) => progress.next_step(),
        None if is_present => Some(admin.first_step(progress.state.present).await?),
        None => None,
    };
    let Some(step) = step else { return Ok(RotateAuthorityResponse { authority: Some(progress.shown()) }) };
    admin.write(Command::Authority(step), call).await?;
    Ok(RotateAuthorityResponse { authority: Some(admin.rotation(call).await?.shown()) })
}

/// Ends a rotation that no member uses yet.
pub async fn abort(admin: &Admin, _: AbortRotationRequest, call: &Call) -> ApiResult<AbortRotationResponse> {
    if let Some(rotation) = admin.rotation(call).await?.state.rotation {
        let step = AuthorityStep::Abort(rotation.next);
        admin.write(Command::Authority(step), call).await?;
    }
    Ok(AbortRotationResponse { authority: Some(admin.rotation(call).await?.shown()) })
}

impl Admin {
    fn tls(&self) -> ApiResult<&NodeTls> {
        self.context.replica.tls().ok_or_else(error_texts::no_authority)
    }

    /// Reads the latest state, and asks all members that are known at it.
    async fn rotation(&self, call: &Call) -> ApiResult<Progress> {
        let own = self.tls()?.authority().id();
        let state = self.read_latest(call, |ledger| ledger.head().authority).await?;
        let state = state.unwrap_or(AuthorityState { present: own, rotation: None });
        let members = self.context.replica.members();
        let mut described = self.descriptions(members.keys().copied(), REPORTED_WITHIN).await;
        let member = |(node, member): (_, reveille_raft::Member)| {
            let report = described.remove(&node).and_then(|described| described.description.trust);
            MemberTrust { name: member.name, report }
        };
        Ok(Progress { state, members: members.into_iter().map(member).collect() })
    }

    /// Makes the new authority on this node.
    async fn first_step(&self, present: AuthorityId) -> ApiResult<AuthorityStep> {
        let tls = self.tls()?.clone();
        let created = self.context.replica.blocking(move || tls.prepare_next()).await;
        let failed = |why: String| error_texts::broken(format!("the new authority cannot be stored: {why}"));
        let (own, next) =
            created.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        match own == present {
            true => Ok(AuthorityStep::Add { present, next }),
            false => Err(failed("this node has not forgotten the former one yet; try again".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u8) -> AuthorityId {
        AuthorityId([number; 32])
    }

    fn progress(phase: Option<RotationPhase>, reports: &[Option<(&[u8], u8)>]) -> Progress {
        let rotation = phase.map(|phase| AuthorityRotation { next: id(2), phase });
        let member = |(place, report): (usize, &Option<(&[u8], u8)>)| {
            let report = report.map(|(trusts, uses)| TrustReport {
                trusts: trusts.iter().map(|number| id(*number)).collect(),
                uses: id(uses),
            });
            MemberTrust { name: format!("n{place}"), report }
        };
        let members = reports.iter().enumerate().map(member).collect();
        Progress { state: AuthorityState { present: id(1), rotation }, members }
    }

    #[test]
    fn step_waits_for_each_member() {
        use RotationPhase::{Adding, Using};
        let (old, both, new) = (Some((&[1][..], 1)), Some((&[1, 2][..], 1)), Some((&[1, 2][..], 2)));
        let case = |phase, reports: &[_]| {
            let progress = progress(phase, reports);
            (progress.next_step(), progress.waits_for())
        };
        let waits = |member: &str, reason: AuthorityWaitReason| {
            (None, vec![AuthorityWait { member: member.to_owned(), reason: reason.into() }])
        };
        assert_eq!(case(Some(Adding), &[both, both, old]), waits("n2", AuthorityWaitReason::TrustsFormer));
        assert_eq!(case(Some(Adding), &[both, None, both]), waits("n1", AuthorityWaitReason::Silent));
        assert_eq!(case(Some(Adding), &[both, both]), (Some(AuthorityStep::Use(id(2))), vec![]));
        assert_eq!(case(Some(Using), &[both, new]), waits("n0", AuthorityWaitReason::UsesFormer));
        assert_eq!(case(Some(Using), &[new, new]), (Some(AuthorityStep::DropFormer(id(2))), vec![]));
        assert_eq!(case(None, &[old, both]), waits("n1", AuthorityWaitReason::KnowsOther));
        // The only member that had it is lost, and was removed.
        assert_eq!(case(Some(Adding), &[old, old]).0, Some(AuthorityStep::Abort(id(2))));
        assert_eq!(case(Some(Adding), &[old, None]).0, None, "it may come back");
    }
}
