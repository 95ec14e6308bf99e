//! Rotation of the certificate authority (P22): which step is next. The caller has asked the members before each step.

use super::bounds::refuse_if;
use crate::command::AuthorityStep;
use crate::model::{
    AuthorityId, AuthorityRotation, AuthorityState, CommandOutcome, CommandRefusal, Impossible, Ledger, RotationPhase,
};

impl Ledger {
    pub(super) fn authority_step(&mut self, step: &AuthorityStep) -> Result<CommandOutcome, CommandRefusal> {
        let known = self.head.authority;
        let rotation = |next| known.and_then(|state| state.rotation).filter(|rotation| rotation.next == next);
        let is_done = |next: AuthorityId| known.is_some_and(|state| state.present == next);
        let with = |present, rotation| Some(AuthorityState { present, rotation });
        self.head.authority = match *step {
            AuthorityStep::Add { next, .. } if is_done(next) || rotation(next).is_some() => known,
            AuthorityStep::Add { present, next } => {
                refuse_if(known.is_some_and(|state| state.present != present), Impossible::AuthorityChanged)?;
                refuse_if(known.is_some_and(|state| state.rotation.is_some()), Impossible::OtherRotation)?;
                with(present, Some(AuthorityRotation { next, phase: RotationPhase::Adding }))
            }
            AuthorityStep::Use(next) | AuthorityStep::DropFormer(next) if is_done(next) => known,
            AuthorityStep::Use(next) => {
                let state = known.filter(|_| rotation(next).is_some()).ok_or(Impossible::OtherRotation)?;
                with(state.present, Some(AuthorityRotation { next, phase: RotationPhase::Using }))
            }
            AuthorityStep::DropFormer(next) => {
                let used = rotation(next).is_some_and(|rotation| rotation.phase == RotationPhase::Using);
                refuse_if(!used, Impossible::OtherRotation)?;
                with(next, None)
            }
            AuthorityStep::Abort(next) => {
                let used = rotation(next).is_some_and(|rotation| rotation.phase == RotationPhase::Using);
                refuse_if(used || is_done(next), Impossible::AuthorityUsed)?;
                known.map(|state| match rotation(next) {
                    Some(_) => AuthorityState { rotation: None, ..state },
                    None => state,
                })
            }
        };
        Ok(CommandOutcome::Done)
    }
}
