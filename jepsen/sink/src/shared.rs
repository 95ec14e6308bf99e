//! State that all dialogues of a sink share.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::connections::Connections;
use crate::fault_chooser::FaultChooser;
use crate::hold::HoldBoard;
use crate::kept_accepts::KeptAccepts;
use crate::options::SinkOptions;

/// The state of a sink.
pub(crate) struct SinkState {
    pub(crate) options: SinkOptions,
    pub(crate) address: SocketAddr,
    pub(crate) kept: KeptAccepts,
    pub(crate) fault_chooser: FaultChooser,
    pub(crate) holds: HoldBoard,
    pub(crate) connections: Arc<Connections>,
    pub(crate) stop: CancellationToken,
}
