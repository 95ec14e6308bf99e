//! The tenant that each message of the API names.
//!
//! A request without an implementation does not compile as the message of a method. [`serve!`](super::super::services)
//! writes the usual ones; those that differ are here.

use reveille_ledger::DEFAULT_TENANT;
use reveille_ledger::token::Rights;
use reveille_proto::admin::v1::{
    BatchCreateSchedulesRequest, GetScheduleRequest, GetTenantRequest, ScheduleBody, UpdateScheduleRequest,
};

use super::rights::{NONE, PII};

/// The message of a request, as the access rules read it.
pub trait Subject {
    /// Calls `visit` with each tenant that the message names. A message about the cluster names none.
    fn visit_tenants(&mut self, _visit: &mut dyn FnMut(&mut String)) {}

    /// Returns the rights that this message needs, beside those of its method.
    fn needs_more(&self) -> Rights {
        NONE
    }
}

impl Subject for BatchCreateSchedulesRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        match self.schedules.as_mut_slice() {
            [] => visit_body(None, visit),
            schedules => schedules.iter_mut().for_each(|schedule| visit(&mut schedule.tenant)),
        }
    }
}

impl Subject for GetTenantRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        visit(&mut self.name);
    }
}

impl Subject for GetScheduleRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        visit(&mut self.tenant);
    }

    /// The body contains the recipients.
    fn needs_more(&self) -> Rights {
        if self.with_body { PII } else { NONE }
    }
}

impl Subject for UpdateScheduleRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        visit_body(self.schedule.as_mut(), visit);
    }

    /// The bodies contain the recipients.
    fn needs_more(&self) -> Rights {
        if self.with_bodies { PII } else { NONE }
    }
}

/// A missing body is refused later, like one of the default tenant.
pub fn visit_body(body: Option<&mut ScheduleBody>, visit: &mut dyn FnMut(&mut String)) {
    match body {
        Some(body) => visit(&mut body.tenant),
        None => visit(&mut DEFAULT_TENANT.to_owned()),
    }
}
