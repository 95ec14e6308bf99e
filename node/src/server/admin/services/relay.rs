//! Relays: add, list, test, remove.

use std::time::Instant;

use prost_types::Timestamp;
use reveille_cluster::smtp::Target;
use reveille_ledger::access::Access;
use reveille_ledger::command::{Command, Relay, RelayPut, Removal};
use reveille_ledger::{Ledger, Schedule, ScheduleState};
use reveille_proto::admin::v1::{
    self, AddRelayRequest, AddRelayResponse, Freshness, GetRelayRequest, GetRelayResponse, ListRelaysRequest,
    ListRelaysResponse, RemoveRelayRequest, RemoveRelayResponse, TestRelayRequest, TestRelayResponse,
};

use super::cluster::whole_ms;
use super::probe::{self, ProbeResult};
use super::schedule::create;
use crate::server::admin::enums::OnWire;
use crate::server::admin::lookup::near;
use crate::server::admin::paging::Paging;
use crate::server::admin::validate::Fields;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

impl Admin {
    async fn find_relay(&self, name: &str, stale: bool, call: &Call) -> ApiResult<(Relay, Option<Freshness>)> {
        let query = self.try_read(stale, call, |ledger| {
            let names = || near(name, ledger.relays().iter().map(|(name, _)| name.clone()));
            ledger.relays().get(&name.to_owned()).cloned().ok_or_else(|| error_texts::no_relay(name).near(&names()))
        });
        query.await
    }

    /// Checks that this node has the credentials, so that an error comes now and not at the first login. Other nodes
    /// may still lack them.
    fn may_log_in(&self, relay: &Relay) -> ApiResult<()> {
        let (Some(relays), Some(name)) = (self.context.relays(), &relay.access.credentials) else { return Ok(()) };
        let found = relays.credentials().find(name, &relay.host, relay.port);
        found.map(drop).map_err(|why| ApiError::of_field("relay.credentials", why))
    }

    /// Returns a relay with its health on this node.
    fn relay_view(&self, relay: &Relay) -> v1::Relay {
        let status = self.context.relays().and_then(|relays| relays.status_of(&relay.name));
        let (node, now) = (&self.context.introduction.name, self.context.clock.wall());
        let health = status.map(|status| views::health(node, now, status));
        v1::Relay { health, ..views::relay(relay) }
    }
}

/// Returns true if a schedule or an open run uses the pool.
fn is_used(ledger: &Ledger, pool: &str) -> bool {
    let by_schedule =
        |(_, schedule): (_, &Schedule)| *schedule.settings.pool == *pool && schedule.state != ScheduleState::Done;
    ledger.schedules().iter().any(by_schedule) || ledger.open_pages().any(|(_, page)| *page.pool == *pool)
}

serve! {
    relay_service_server::RelayService {
        cluster add_relay(AddRelayRequest, request_id) -> AddRelayResponse;
        cluster list_relays(ListRelaysRequest) -> ListRelaysResponse;
        cluster get_relay(GetRelayRequest) -> GetRelayResponse;
        cluster test_relay(TestRelayRequest) -> TestRelayResponse;
        cluster remove_relay(RemoveRelayRequest) -> RemoveRelayResponse;
    }
}

impl Admin {
    async fn add_relay(&self, request: AddRelayRequest, call: &Call) -> ApiResult<AddRelayResponse> {
        let AddRelayRequest { relay, replace, request_id, validate_only, etag } = request;
        let mut fields = Fields::default();
        let (request, expected) = (fields.request_id(&request_id), fields.etag(&etag));
        fields.done(Some(()))?;
        let relay = validate::relay(relay)?;
        self.may_log_in(&relay)?;
        let answer = views::relay(&relay);
        let put = Command::RelayPut(RelayPut { relay, replace, request, expected });
        let reply = self.write_unless(validate_only, put, call).await?;
        Ok(AddRelayResponse { relay: Some(answer), index: reply.map_or(0, |reply| reply.index) })
    }

    async fn list_relays(&self, request: ListRelaysRequest, call: &Call) -> ApiResult<ListRelaysResponse> {
        let paging: Paging<String> = Paging::new("relays", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| {
            let listed = ledger.relays().range(paging.rest()).map(|(_, relay)| relay);
            listed.take(paging.size + 1).cloned().collect::<Vec<_>>()
        });
        let (mut listed, freshness) = query.await?;
        let next_page_token = paging.cut(&mut listed, |relay| &relay.name);
        let relays = listed.iter().map(|relay| self.relay_view(relay)).collect();
        Ok(ListRelaysResponse { relays, next_page_token, freshness })
    }

    async fn get_relay(&self, request: GetRelayRequest, call: &Call) -> ApiResult<GetRelayResponse> {
        let (relay, freshness) = self.find_relay(&request.name, request.stale, call).await?;
        Ok(GetRelayResponse { relay: Some(self.relay_view(&relay)), freshness })
    }

    async fn test_relay(&self, request: TestRelayRequest, call: &Call) -> ApiResult<TestRelayResponse> {
        let TestRelayRequest { name, stale, authenticate } = request;
        let (relay, _) = self.find_relay(&name, stale, call).await?;
        let node = self.context.introduction.name.clone();
        let credentials = relay.access.credentials.clone().filter(|_| authenticate);
        let requested = Relay { access: Access { credentials, ..relay.access.clone() }, ..relay.clone() };
        let target = match self.context.relays() {
            Some(relays) => relays.target(&requested),
            None => Target::new(&requested.host, requested.port, None, &requested.access),
        };
        let target = target.map_err(|error| ApiError::of_field("name", error.to_string()))?;
        let begun = Instant::now();
        let ProbeResult { reachable, problem, fix, stage, findings } =
            probe::probe(&relay, &target, self.dialer.as_ref()).await;
        let elapsed = whole_ms(begun.elapsed());
        let encryption = findings.encryption.unwrap_or_default();
        let certificate_expires_at =
            (encryption.expires_at_s != 0).then_some(Timestamp { seconds: encryption.expires_at_s, nanos: 0 });
        Ok(TestRelayResponse {
            reachable,
            node,
            elapsed: Some(views::duration(elapsed)),
            banner: findings.banner,
            extensions: findings.extensions,
            problem,
            fix: fix.map(OnWire::wire).unwrap_or_default().into(),
            stage: stage.into(),
            tls_version: encryption.version,
            certificate_expire_time: certificate_expires_at,
            certificate_subject: encryption.subject,
            auth_mechanism: findings.mechanism.map(|mechanism| mechanism.to_string()).unwrap_or_default(),
            relay: Some(self.relay_view(&relay)),
        })
    }

    async fn remove_relay(&self, request: RemoveRelayRequest, call: &Call) -> ApiResult<RemoveRelayResponse> {
        let RemoveRelayRequest { name, etag } = request;
        let expected = validate::etag(&etag)?;
        let pool = self.find_relay(&name, false, call).await?.0.pool;
        let reply = self.write(Command::RelayRemove(Removal { name, expected }), call).await?;
        let query = |ledger: &Ledger| is_used(ledger, &pool).then(|| create::warnings(ledger, &pool));
        let warnings = self.context.replica.read(query).unwrap_or_default();
        Ok(RemoveRelayResponse { index: reply.index, warnings })
    }
}
