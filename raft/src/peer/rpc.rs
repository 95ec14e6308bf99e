//! The closed list of peer requests.

use reveille_proto::peer::v1;

use super::PeerError;

/// A request message that knows its response.
pub trait Rpc: Sized {
    /// The message that answers it.
    type Response;
    /// As a member of the closed list.
    fn into_request(self) -> Request;
    /// Takes the answer out of the closed list. A transport that confuses answers has lost this one.
    fn from_response(response: Response) -> Result<Self::Response, PeerError>;
}

/// Calls a macro with the list: variant, method of the gRPC service, messages.
macro_rules! for_each_request {
    ($macro:ident) => {
        $macro! {
            /// Raft: entries for a follower's log; without entries, a heartbeat.
            Append append AppendRequest AppendResponse;
            /// Raft: a vote that counts.
            Vote vote VoteRequest VoteResponse;
            /// Raft: would a vote be given?
            PreVote pre_vote PreVoteRequest PreVoteResponse;
            /// Raft: the leader names its successor.
            TransferLeader transfer_leader TransferLeaderRequest TransferLeaderResponse;
            /// Snapshot, step 1: which chunks does the follower lack?
            OfferSnapshot offer_snapshot OfferSnapshotRequest OfferSnapshotResponse;
            /// Snapshot, step 2: a part of a chunk.
            SendChunk send_chunk SendChunkRequest SendChunkResponse;
            /// Snapshot, step 3: install it.
            InstallSnapshot install_snapshot InstallSnapshotRequest InstallSnapshotResponse;
            /// A command on its way to the leader.
            Propose propose ProposeRequest ProposeResponse;
            /// Up to where must a linearizable read have applied?
            ReadIndex read_index ReadIndexRequest ReadIndexResponse;
            /// A request of the application, which this crate does not read.
            Application application ApplicationRequest ApplicationResponse;
            /// Which node are you? Answered to any caller.
            Identify identify IdentifyRequest IdentifyResponse;
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

        /// The answers, in the same order.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Response {
            $(#[doc = concat!("Answers [`Request::", stringify!($name), "`].")] $name(v1::$response),)*
        }

        impl Request {
            /// The name of the request, for log lines and metrics.
            pub fn name(&self) -> &str {
                if let Request::Application(request) = self {
                    return &request.name;
                }
                match self {
                    $(Request::$name(_) => stringify!($name),)*
                }
            }

            /// Sender, addressee and cluster.
            pub fn header(&self) -> Option<&v1::Header> {
                match self {
                    $(Request::$name(request) => request.header.as_ref(),)*
                }
            }

            /// Sets sender, addressee and cluster.
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
