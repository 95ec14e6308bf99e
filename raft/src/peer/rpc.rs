//! The closed list of peer requests.

use reveille_proto::peer::v1;

use super::PeerError;

/// A request message, and the response message that belongs to it.
pub trait Rpc: Sized {
    /// The response message.
    type Response;
    /// Wraps the message in a [`Request`].
    fn into_request(self) -> Request;
    /// Unwraps the response. Returns [`PeerError::Lost`] if the response belongs to another request.
    fn from_response(response: Response) -> Result<Self::Response, PeerError>;
}

/// Calls a macro with the list: variant, method of the gRPC service, request message, response message.
macro_rules! for_each_request {
    ($macro:ident) => {
        $macro! {
            /// Raft: entries for a follower's log; without entries, a heartbeat.
            Append append AppendRequest AppendResponse;
            /// Raft: requests a vote.
            Vote vote VoteRequest VoteResponse;
            /// Raft: asks if the peer would vote for the sender.
            PreVote pre_vote PreVoteRequest PreVoteResponse;
            /// Raft: the leader names its successor.
            TransferLeader transfer_leader TransferLeaderRequest TransferLeaderResponse;
            /// Snapshot, step 1: asks which blocks the follower lacks.
            OfferSnapshot offer_snapshot OfferSnapshotRequest OfferSnapshotResponse;
            /// Snapshot, step 2: sends some blocks.
            SendBlocks send_blocks SendBlocksRequest SendBlocksResponse;
            /// Snapshot, step 3: asks the follower to install the snapshot.
            InstallSnapshot install_snapshot InstallSnapshotRequest InstallSnapshotResponse;
            /// A node that starts without a readable snapshot asks for the newest one.
            FetchSnapshot fetch_snapshot FetchSnapshotRequest FetchSnapshotResponse;
            /// The same node asks for blocks of it.
            FetchBlocks fetch_blocks FetchBlocksRequest FetchBlocksResponse;
            /// A command that a node forwards to the leader.
            Propose propose ProposeRequest ProposeResponse;
            /// Asks the leader which index a linearizable read must have applied.
            ReadIndex read_index ReadIndexRequest ReadIndexResponse;
            /// A request of the application, which this crate does not read.
            Application application ApplicationRequest ApplicationResponse;
            /// A new node asks to be admitted to the cluster.
            Join join JoinRequest JoinResponse;
        }
    };
}
pub(super) use for_each_request;

macro_rules! define_requests {
    ($($(#[$doc:meta])* $name:ident $method:ident $request:ident $response:ident;)*) => {
        /// A request from one node to another.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $($(#[$doc])* $name(v1::$request),)*
        }

        /// The response to a [`Request`], with the same names of variants.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Response {
            $(#[doc = concat!("Answers [`Request::", stringify!($name), "`].")] $name(v1::$response),)*
        }

        impl Request {
            /// Returns the name of the request, for log lines and metrics.
            pub fn name(&self) -> &str {
                if let Request::Application(request) = self {
                    return &request.name;
                }
                match self {
                    $(Request::$name(_) => stringify!($name),)*
                }
            }

            /// Returns true for the requests of Raft itself: entries, votes, leadership and snapshots.
            pub fn is_of_raft(&self) -> bool {
                use Request::{Append, InstallSnapshot, OfferSnapshot, PreVote, SendBlocks, TransferLeader, Vote};
                matches!(
                    self,
                    Append(_)
                        | Vote(_)
                        | PreVote(_)
                        | TransferLeader(_)
                        | OfferSnapshot(_)
                        | SendBlocks(_)
                        | InstallSnapshot(_)
                )
            }

            /// Returns the header: sender, addressee and cluster.
            pub fn header(&self) -> Option<&v1::Header> {
                match self {
                    $(Request::$name(request) => request.header.as_ref(),)*
                }
            }

            /// Sets the header: sender, addressee and cluster.
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

for_each_request!(define_requests);
