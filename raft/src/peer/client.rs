//! The asking side: every request leaves through [`PeerClient`], which says who speaks.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::{GROUP, Hash, NodeId};
use reveille_proto::peer::v1;

use super::{
    BarrierAnswer, BarrierQuestion, BarrierReport, ClockReading, Description, Destination, FetchPart, LeaseAnswer,
    LeaseQuestion, MakePart, PeerError, PeerService, Rpc, TakePart, Transport,
};
use crate::identity::Identity;
use crate::wire;

/// Asks any peer anything, in the name of this node.
#[derive(Clone)]
pub(crate) struct PeerClient {
    pub transport: Arc<dyn Transport>,
    pub identity: Arc<Identity>,
}

impl PeerClient {
    /// Asks whoever listens at an address who it is, in the name of nobody.
    pub async fn introduce(&self, address: &str, limit: Duration) -> Result<Description, PeerError> {
        let to = Destination { node: NodeId(0), address: address.to_owned() };
        let header = v1::Header { group: GROUP, from: self.identity.node().0, ..v1::Header::default() };
        let request = v1::DescribeRequest { header: Some(header) }.into_request();
        let answer = v1::DescribeRequest::from_response(self.transport.call(&to, request, limit).await?)?;
        Ok(wire::to_description(answer))
    }

    /// Asks, and waits at most `limit`.
    pub async fn ask<R: Rpc>(&self, to: &Destination, request: R, limit: Duration) -> Result<R::Response, PeerError> {
        let cluster = self.identity.cluster().ok_or_else(|| {
            PeerError::Unreachable("this node does not belong to a cluster yet: run 'reveille cluster init'".to_owned())
        })?;
        let mut request = request.into_request();
        request.set_header(v1::Header {
            cluster: cluster.0.to_be_bytes().to_vec().into(),
            group: GROUP,
            from: self.identity.node().0,
            to: to.node.0,
        });
        let name = request.name();
        let answer = self.transport.call(to, request, limit).await;
        if answer.is_err() {
            metrics::counter!("reveille_peer_errors_total", "rpc" => name).increment(1);
        }
        R::from_response(answer?)
    }
}

/// One member of the cluster, this node itself among them, as the application asks it.
pub struct Peer {
    pub(crate) client: PeerClient,
    pub(crate) to: Destination,
    /// Set when the member is this node: it is asked without a detour through the network.
    pub(crate) own: Option<Arc<dyn PeerService>>,
}

impl Peer {
    /// Which member this is.
    pub fn node(&self) -> NodeId {
        self.to.node
    }

    /// Asks it, as the believed leader, to prolong this node's lease (P9). Measure the lease from before
    /// this call.
    pub async fn renew_lease(&self, question: LeaseQuestion, limit: Duration) -> Result<LeaseAnswer, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.renew_lease(question)).await;
        }
        let answer = self.client.ask(&self.to, wire::from_lease_question(&question), limit).await?;
        Ok(wire::to_lease_answer(answer))
    }

    /// Asks whether its gates know an entry (P15).
    pub async fn barrier(&self, question: BarrierQuestion, limit: Duration) -> Result<BarrierAnswer, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.barrier(question)).await;
        }
        let answer = self.client.ask(&self.to, wire::from_barrier_question(&question), limit).await?;
        Ok(wire::to_barrier_answer(answer)?)
    }

    /// Asks it, as the believed leader, to hold a barrier (P15).
    pub async fn hold_barrier(
        &self,
        question: BarrierQuestion,
        limit: Duration,
    ) -> Result<Result<BarrierReport, String>, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.hold_barrier(question)).await;
        }
        let answer = self.client.ask(&self.to, wire::from_held_question(&question), limit).await?;
        Ok(wire::to_report(answer)?)
    }

    /// Asks it, as the believed leader, to hand over to `to`.
    pub async fn hand_over(&self, to: NodeId, limit: Duration) -> Result<Result<(), String>, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.hand_over(to, limit)).await;
        }
        let remaining_ms = limit.as_millis() as u64;
        let request = v1::HandOverRequest { header: None, node: to.0, remaining_ms };
        let refusal = self.client.ask(&self.to, request, limit).await?.refusal;
        Ok(if refusal.is_empty() { Ok(()) } else { Err(refusal) })
    }

    /// Has it write a part of an audience (P20).
    pub async fn make_part(&self, question: MakePart, limit: Duration) -> Result<Result<Hash, String>, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.make_part(question)).await;
        }
        let answer = self.client.ask(&self.to, wire::from_make_part(question), limit).await?;
        Ok(wire::to_part_made(&answer)?)
    }

    /// Takes a piece of a part of an audience from it (P20).
    pub async fn fetch_part(&self, question: FetchPart, limit: Duration) -> Result<Option<(Vec<u8>, u64)>, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.fetch_part(question)).await;
        }
        let answer = self.client.ask(&self.to, wire::from_fetch_part(question), limit).await?;
        Ok((answer.total > 0).then(|| (answer.piece.to_vec(), answer.total)))
    }

    /// Asks which of these parts of audiences it lacks (P20).
    pub async fn hold_parts(&self, parts: Vec<Hash>, limit: Duration) -> Result<Result<Vec<Hash>, String>, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.hold_parts(parts)).await;
        }
        let answer = self.client.ask(&self.to, wire::from_hold_parts(parts), limit).await?;
        Ok(wire::to_lacking(answer)?)
    }

    /// Has it take a part of an audience over from another node (P20).
    pub async fn take_part(&self, question: TakePart, limit: Duration) -> Result<Result<(), String>, PeerError> {
        if let Some(own) = &self.own {
            return within(limit, own.take_part(question)).await;
        }
        let refusal = self.client.ask(&self.to, wire::from_take_part(question), limit).await?.refusal;
        Ok(if refusal.is_empty() { Ok(()) } else { Err(refusal) })
    }

    /// Asks how it stands.
    pub async fn describe(&self, limit: Duration) -> Result<Description, PeerError> {
        if let Some(own) = &self.own {
            let starting = || PeerError::Unreachable("this node is starting".to_owned());
            return within(limit, own.describe()).await?.ok_or_else(starting);
        }
        Ok(wire::to_description(self.client.ask(&self.to, v1::DescribeRequest::default(), limit).await?))
    }

    /// Reads its clocks (P18).
    pub async fn clock(&self, limit: Duration) -> Result<ClockReading, PeerError> {
        if let Some(own) = &self.own {
            return Ok(own.clock());
        }
        let answer = self.client.ask(&self.to, v1::ClockRequest::default(), limit).await?;
        Ok(wire::to_clock(answer))
    }
}

async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T, PeerError> {
    let late = |_| PeerError::Lost(format!("this node did not answer itself within {} ms", limit.as_millis()));
    tokio::time::timeout(limit, answer).await.map_err(late)
}
