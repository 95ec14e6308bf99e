//! Conversions of what the application asks of its peers: leases, barriers, clocks, descriptions.

use std::time::Duration;

use reveille_ledger::ids::{ClaimOwner, Epoch, Hash, Incarnation, NodeId, RunId, Time};
use reveille_proto::peer::v1;

use super::{Malformed, from_hash, milliseconds, required, to_hash};
use crate::identity::ClusterId;
use crate::peer::{
    About, BarrierAnswer, BarrierQuestion, BarrierReport, ClockReading, Crossed, Description, FetchPart, LeaseAnswer,
    LeaseQuestion, MakePart, Measured, RelayFlow, TakePart,
};

pub(crate) fn from_lease_question(question: &LeaseQuestion) -> v1::RenewLeaseRequest {
    v1::RenewLeaseRequest {
        header: None,
        incarnation: question.holder.incarnation.0,
        applied: question.applied,
        lacking: question.lacking.iter().copied().map(from_hash).collect(),
        relays: question.measured.relays.iter().map(from_relay_flow).collect(),
        settle_ms: question.measured.settle.map_or(0, milliseconds),
        stopping: question.stopping,
    }
}

fn from_relay_flow((relay, flow): (&String, &RelayFlow)) -> v1::RelayFlow {
    let dialogue_ms = flow.dialogue.map_or(0, milliseconds);
    v1::RelayFlow { relay: relay.clone(), dialogue_ms, rate_milli: flow.rate_milli }
}

fn to_measured(request: &v1::RenewLeaseRequest) -> Measured {
    let known = |ms: u64| (ms > 0).then_some(Duration::from_millis(ms));
    let flow = |flow: &v1::RelayFlow| RelayFlow { dialogue: known(flow.dialogue_ms), rate_milli: flow.rate_milli };
    let relays = request.relays.iter().map(|relay| (relay.relay.clone(), flow(relay))).collect();
    Measured { relays, settle: known(request.settle_ms) }
}

pub(crate) fn to_lease_question(from: NodeId, request: &v1::RenewLeaseRequest) -> Result<LeaseQuestion, Malformed> {
    Ok(LeaseQuestion {
        holder: ClaimOwner { node: from, incarnation: Incarnation(request.incarnation) },
        applied: request.applied,
        lacking: request.lacking.iter().map(|hash| to_hash(hash)).collect::<Result<_, _>>()?,
        measured: to_measured(request),
        stopping: request.stopping,
    })
}

pub(crate) fn from_make_part(question: MakePart) -> v1::MakePartRequest {
    let MakePart { seed, rows, columns, number } = question;
    v1::MakePartRequest { header: None, seed, rows, columns, number }
}

pub(crate) fn to_make_part(request: v1::MakePartRequest) -> MakePart {
    let v1::MakePartRequest { header: _, seed, rows, columns, number } = request;
    MakePart { seed, rows, columns, number }
}

pub(crate) fn from_part_made(made: Result<Hash, String>) -> v1::MakePartResponse {
    match made {
        Ok(hash) => v1::MakePartResponse { hash: from_hash(hash), refusal: String::new() },
        Err(refusal) => v1::MakePartResponse { refusal, ..v1::MakePartResponse::default() },
    }
}

pub(crate) fn to_part_made(response: &v1::MakePartResponse) -> Result<Result<Hash, String>, Malformed> {
    match response.refusal.as_str() {
        "" => to_hash(&response.hash).map(Ok),
        refusal => Ok(Err(refusal.to_owned())),
    }
}

pub(crate) fn from_fetch_part(question: FetchPart) -> v1::FetchPartRequest {
    v1::FetchPartRequest { header: None, part: from_hash(question.part), offset: question.offset }
}

pub(crate) fn to_fetch_part(request: &v1::FetchPartRequest) -> Result<FetchPart, Malformed> {
    Ok(FetchPart { part: to_hash(&request.part)?, offset: request.offset })
}

pub(crate) fn from_hold_parts(parts: Vec<Hash>) -> v1::HoldPartsRequest {
    v1::HoldPartsRequest { header: None, parts: parts.into_iter().map(from_hash).collect() }
}

pub(crate) fn to_hold_parts(request: &v1::HoldPartsRequest) -> Result<Vec<Hash>, Malformed> {
    request.parts.iter().map(|part| to_hash(part)).collect()
}

pub(crate) fn from_lacking(lacking: Result<Vec<Hash>, String>) -> v1::HoldPartsResponse {
    match lacking {
        Ok(lacking) => {
            v1::HoldPartsResponse { lacking: lacking.into_iter().map(from_hash).collect(), refusal: String::new() }
        }
        Err(refusal) => v1::HoldPartsResponse { refusal, ..v1::HoldPartsResponse::default() },
    }
}

pub(crate) fn to_lacking(response: v1::HoldPartsResponse) -> Result<Result<Vec<Hash>, String>, Malformed> {
    match response.refusal.is_empty() {
        true => response.lacking.iter().map(|part| to_hash(part)).collect::<Result<_, _>>().map(Ok),
        false => Ok(Err(response.refusal)),
    }
}

pub(crate) fn from_take_part(question: TakePart) -> v1::TakePartRequest {
    v1::TakePartRequest { header: None, part: from_hash(question.part), holder: question.holder.0 }
}

pub(crate) fn to_take_part(request: &v1::TakePartRequest) -> Result<TakePart, Malformed> {
    Ok(TakePart { part: to_hash(&request.part)?, holder: NodeId(request.holder) })
}

pub(crate) fn from_lease_answer(answer: LeaseAnswer) -> v1::RenewLeaseResponse {
    match answer {
        LeaseAnswer::Granted { lease, epoch, floor } => {
            v1::RenewLeaseResponse { lease_ms: milliseconds(lease), refusal: String::new(), epoch: epoch.0, floor }
        }
        LeaseAnswer::Refused(refusal) => v1::RenewLeaseResponse { refusal, ..v1::RenewLeaseResponse::default() },
    }
}

pub(crate) fn to_lease_answer(response: v1::RenewLeaseResponse) -> LeaseAnswer {
    if response.lease_ms == 0 {
        return LeaseAnswer::Refused(response.refusal);
    }
    LeaseAnswer::Granted {
        lease: Duration::from_millis(response.lease_ms),
        epoch: Epoch(response.epoch),
        floor: response.floor,
    }
}

pub(crate) fn from_barrier_question(question: &BarrierQuestion) -> v1::BarrierRequest {
    let about = match &question.about {
        About::OptedOut { tenant, keys } => {
            let keys = keys.iter().cloned().collect();
            v1::barrier_request::About::OptedOut(v1::OptedOut { tenant: tenant.clone(), keys })
        }
        About::Run(run) => v1::barrier_request::About::Run(from_run(*run)),
    };
    v1::BarrierRequest {
        header: None,
        index: question.index,
        remaining_ms: milliseconds(question.patience),
        about: Some(about),
    }
}

pub(crate) fn to_barrier_question(request: v1::BarrierRequest) -> Result<BarrierQuestion, Malformed> {
    let about = match required(request.about, "about")? {
        v1::barrier_request::About::OptedOut(opted_out) => {
            About::OptedOut { tenant: opted_out.tenant, keys: opted_out.keys.into_iter().collect() }
        }
        v1::barrier_request::About::Run(run) => About::Run(to_run(run)),
    };
    Ok(BarrierQuestion { index: request.index, about, patience: Duration::from_millis(request.remaining_ms) })
}

pub(crate) fn from_held_question(question: &BarrierQuestion) -> v1::HoldBarrierRequest {
    use v1::{barrier_request, hold_barrier_request};
    let v1::BarrierRequest { header, index, remaining_ms, about } = from_barrier_question(question);
    let about = about.map(|about| match about {
        barrier_request::About::OptedOut(opted_out) => hold_barrier_request::About::OptedOut(opted_out),
        barrier_request::About::Run(run) => hold_barrier_request::About::Run(run),
    });
    v1::HoldBarrierRequest { header, index, remaining_ms, about }
}

pub(crate) fn to_held_question(request: v1::HoldBarrierRequest) -> Result<BarrierQuestion, Malformed> {
    use v1::{barrier_request, hold_barrier_request};
    let about = request.about.map(|about| match about {
        hold_barrier_request::About::OptedOut(opted_out) => barrier_request::About::OptedOut(opted_out),
        hold_barrier_request::About::Run(run) => barrier_request::About::Run(run),
    });
    let v1::HoldBarrierRequest { header, index, remaining_ms, .. } = request;
    to_barrier_question(v1::BarrierRequest { header, index, remaining_ms, about })
}

pub(crate) fn from_report(report: Result<BarrierReport, String>) -> v1::HoldBarrierResponse {
    match report {
        Ok(report) => v1::HoldBarrierResponse {
            refusal: String::new(),
            crossed: from_barrier_answer(BarrierAnswer { crossed: report.crossed, ..BarrierAnswer::default() }).crossed,
            unconfirmed: report.unconfirmed.into_iter().map(|node| node.0).collect(),
        },
        Err(refusal) => v1::HoldBarrierResponse { refusal, ..v1::HoldBarrierResponse::default() },
    }
}

pub(crate) fn to_report(response: v1::HoldBarrierResponse) -> Result<Result<BarrierReport, String>, Malformed> {
    if !response.refusal.is_empty() {
        return Ok(Err(response.refusal));
    }
    let answer = v1::BarrierResponse { crossed: response.crossed, ..v1::BarrierResponse::default() };
    let crossed = to_barrier_answer(answer)?.crossed;
    Ok(Ok(BarrierReport { crossed, unconfirmed: response.unconfirmed.into_iter().map(NodeId).collect() }))
}

pub(crate) fn from_description(description: Description) -> v1::DescribeResponse {
    let checkpoint = |(index, hash): (u64, Hash)| v1::Checkpoint { index, state_hash: hash.0.to_vec().into() };
    v1::DescribeResponse {
        node: description.node.0,
        name: description.name,
        address: description.address,
        cluster: description.cluster.map(|cluster| cluster.0.to_be_bytes().to_vec()).unwrap_or_default().into(),
        incarnation: description.incarnation.0,
        applied: description.applied,
        checkpoints: description.checkpoints.into_iter().map(checkpoint).collect(),
        wall_ms: description.wall.0,
        version: description.version,
        tzdb: description.tzdb,
        no_room: description.no_room,
        stopping: description.stopping,
    }
}

pub(crate) fn to_description(response: v1::DescribeResponse) -> Description {
    let cluster = <[u8; 16]>::try_from(response.cluster.as_ref()).ok();
    let checkpoint = |told: v1::Checkpoint| Some((told.index, Hash(told.state_hash.as_ref().try_into().ok()?)));
    Description {
        node: NodeId(response.node),
        name: response.name,
        address: response.address,
        cluster: cluster.map(|cluster| ClusterId(u128::from_be_bytes(cluster))),
        incarnation: Incarnation(response.incarnation),
        applied: response.applied,
        checkpoints: response.checkpoints.into_iter().filter_map(checkpoint).collect(),
        wall: Time(response.wall_ms),
        version: response.version,
        tzdb: response.tzdb,
        no_room: response.no_room,
        stopping: response.stopping,
    }
}

pub(crate) fn from_barrier_answer(answer: BarrierAnswer) -> v1::BarrierResponse {
    let crossed = answer.crossed.into_iter().map(|crossed| v1::CrossedHandOff {
        run: Some(from_run(crossed.run)),
        recipient: crossed.recipient,
        fence: crossed.fence.to_string(),
    });
    v1::BarrierResponse {
        confirmed: answer.confirmed,
        crossed: crossed.collect(),
        incarnation: answer.incarnation.0,
        applied: answer.applied,
    }
}

pub(crate) fn to_barrier_answer(response: v1::BarrierResponse) -> Result<BarrierAnswer, Malformed> {
    let crossed = response.crossed.into_iter().map(|crossed| {
        Ok(Crossed {
            run: to_run(required(crossed.run, "crossed.run")?),
            recipient: crossed.recipient,
            fence: crossed.fence.parse().map_err(|_| Malformed(format!("'{}' is no fence", crossed.fence)))?,
        })
    });
    Ok(BarrierAnswer {
        confirmed: response.confirmed,
        incarnation: Incarnation(response.incarnation),
        crossed: crossed.collect::<Result<_, Malformed>>()?,
        applied: response.applied,
    })
}

fn from_run(run: RunId) -> v1::Run {
    v1::Run { index: run.index, place: run.place }
}

fn to_run(run: v1::Run) -> RunId {
    RunId { index: run.index, place: run.place }
}

pub(crate) fn from_clock(reading: ClockReading) -> v1::ClockResponse {
    v1::ClockResponse { wall_ms: reading.wall.0, boot_ms: reading.boot_ms }
}

pub(crate) fn to_clock(response: v1::ClockResponse) -> ClockReading {
    ClockReading { wall: Time(response.wall_ms), boot_ms: response.boot_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_a_lease_comes_with_what_was_measured() {
        let holder = ClaimOwner { node: NodeId(3), incarnation: Incarnation(2) };
        let flow = |dialogue_ms: Option<u64>, rate_milli| RelayFlow {
            dialogue: dialogue_ms.map(Duration::from_millis),
            rate_milli,
        };
        let relays = [("one".to_owned(), flow(Some(2_000), 500)), ("two".to_owned(), flow(None, 0))].into();
        let measured = Measured { relays, settle: Some(Duration::from_millis(40)) };
        let question = LeaseQuestion { holder, applied: 9, lacking: vec![Hash([7; 32])], measured, stopping: true };
        assert_eq!(to_lease_question(holder.node, &from_lease_question(&question)).ok(), Some(question));
    }

    #[test]
    fn a_node_that_measures_nothing_says_nothing() {
        let silent = v1::RenewLeaseRequest { applied: 9, ..v1::RenewLeaseRequest::default() };
        let read = to_lease_question(NodeId(1), &silent).ok();
        assert_eq!(read.map(|question| question.measured), Some(Measured::default()));
    }
}
