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
            /// The name of the request, for log lines and metrics.
            pub fn name(&self) -> &str {
                if let Request::Application(request) = self {
                    return &request.name;
                }
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
    /// A request of the application, which this crate does not read.
    Application: ApplicationRequest -> ApplicationResponse;
    /// Which node are you? Answered to any caller.
    Identify: IdentifyRequest -> IdentifyResponse;
}
