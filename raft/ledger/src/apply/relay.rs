//! Relays: put and remove (P25).

use super::Context;
use super::bounds::refuse_if;
use crate::command::{RelayPut, Removal};
use crate::effect::Effect;
use crate::model::{CommandOutcome, CommandRefusal, EtagKind, Impossible, Ledger, check_etag, is_loopback};

impl Ledger {
    pub(super) fn relay_put(&mut self, context: &mut Context, RelayPut { relay, .. }: &RelayPut) -> CommandOutcome {
        if self.relays.get(&relay.name) != Some(relay) {
            self.relays.put(relay.name.clone(), relay.clone());
            context.emit(Effect::RelaysChanged);
        }
        CommandOutcome::Done
    }

    /// Checks a relay.
    pub(super) fn check_relay_put(&self, put: &RelayPut) -> Result<(), CommandRefusal> {
        let RelayPut { relay, replace, expected, .. } = put;
        if self.head.test_clock.is_some() && !is_loopback(&relay.host) {
            return Err(Impossible::RelayElsewhere { host: relay.host.clone() }.into());
        }
        match self.relays.get(&relay.name) {
            // A repeat is answered like the first request, which has made the etag another one.
            Some(known) if known == relay => Ok(()),
            Some(_) if !replace => Err(CommandRefusal::RelayNameTaken(relay.name.clone())),
            _ => {
                let etag = self.relay_etag(&relay.name);
                check_etag(expected.as_deref(), (EtagKind::Relay, &relay.name), &etag)
            }
        }
    }

    pub(super) fn check_relay_remove(&self, Removal { name, expected }: &Removal) -> Result<(), CommandRefusal> {
        refuse_if(!self.relays.contains(name), CommandRefusal::NoSuchRelay(name.clone()))?;
        check_etag(expected.as_deref(), (EtagKind::Relay, name), &self.relay_etag(name))
    }

    pub(super) fn relay_remove(&mut self, context: &mut Context, name: &str) -> CommandOutcome {
        self.relays.remove(&name.to_owned());
        context.emit(Effect::RelaysChanged);
        CommandOutcome::Done
    }
}
