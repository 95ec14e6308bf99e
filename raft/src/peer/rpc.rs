//! The closed list of what a peer can ask, one line each: the one place to look at when one is added.

use reveille_proto::peer::v1;

use super::PeerError;

/// A request message that knows its response.
pub trait Rpc: Sized {
    /// What answers it.
    type Response;
    /// As a member of the closed list.
    fn into_request(self) -> Request;
    /// Takes the answer out of the closed list; a transport that mixes them up has lost the answer.
    fn from_response(response: Response) -> Result<Self::Response, PeerError>;
}

macro_rules! rpcs {
    ($($(#[$doc:meta])* $name:ident: $request:ident -> $response:ident;)*) => {
        /// Everything that one node can ask of another.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $($(#[$doc])* $name(v1::$request),)*
        }

        /// The answers, in the same order.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Response {
            $(#[doc = concat!("Answers [`Request::", stringify!($name), "`].")] $name(v1::$response),)*
        }

        impl Request {
            /// The name of the RPC, for log lines and metrics.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Request::$name(_) => stringify!($name),)*
                }
            }

            /// Who speaks, and to whom.
            pub fn header(&self) -> Option<&v1::Header> {
                match self {
                    $(Request::$name(request) => request.header.as_ref(),)*
                }
            }

            /// Says who speaks, and to whom.
            pub fn set_header(&mut self, header: v1::Header) {
                match self {
                    $(Request::$name(request) => request.header = Some(header),)*
                }
            }
        }

        $(impl Rpc for v1::$request {
            type Response = v1::$response;

            fn into_request(self) -> Request {
                Request::$name(self)
            }

            fn from_response(response: Response) -> Result<v1::$response, PeerError> {
                match response {
                    Response::$name(response) => Ok(response),
                    _ => Err(PeerError::Lost(concat!("another answer than that of ", stringify!($name)).to_owned())),
                }
            }
        })*
    };
}

rpcs! {
    /// Raft: entries for a follower's log; without entries, a heartbeat.
    Append: AppendRequest -> AppendResponse;
    /// Raft: a vote that counts.
    Vote: VoteRequest -> VoteResponse;
    /// Raft: would a vote be given?
    PreVote: PreVoteRequest -> PreVoteResponse;
    /// Raft: the leader names its successor.
    TransferLeader: TransferLeaderRequest -> TransferLeaderResponse;
    /// Snapshot, step 1: which chunks does the follower lack?
    OfferSnapshot: OfferSnapshotRequest -> OfferSnapshotResponse;
    /// Snapshot, step 2: a part of a chunk.
    SendChunk: SendChunkRequest -> SendChunkResponse;
    /// Snapshot, step 3: install it.
    InstallSnapshot: InstallSnapshotRequest -> InstallSnapshotResponse;
    /// A command on its way to the leader.
    Propose: ProposeRequest -> ProposeResponse;
    /// Up to where must a linearizable read have applied?
    ReadIndex: ReadIndexRequest -> ReadIndexResponse;
    /// P9: prolong a node lease.
    RenewLease: RenewLeaseRequest -> RenewLeaseResponse;
    /// P15: do your gates know this entry?
    Barrier: BarrierRequest -> BarrierResponse;
    /// P18: what do your clocks say?
    Clock: ClockRequest -> ClockResponse;
    /// P15: hold a barrier until no gate decides without this entry.
    HoldBarrier: HoldBarrierRequest -> HoldBarrierResponse;
    /// Hand your leadership over.
    HandOver: HandOverRequest -> HandOverResponse;
    /// P20: write a part of an audience.
    MakePart: MakePartRequest -> MakePartResponse;
    /// P20: give me a piece of a part of an audience.
    FetchPart: FetchPartRequest -> FetchPartResponse;
    /// P20: which of these parts do you lack? Keep the others for a while.
    HoldParts: HoldPartsRequest -> HoldPartsResponse;
    /// P20: take this part over from that node.
    TakePart: TakePartRequest -> TakePartResponse;
    /// Who are you, and how do you stand?
    Describe: DescribeRequest -> DescribeResponse;
}
