//! The faults, their targets and their families.

use std::time::Duration;

use reveille_check::events::FaultKind;

/// Families of faults, as they are chosen on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Family {
    /// kill -9: leader, sender, random, all; between dot and 250; down for less than a lease or for longer
    Kill,
    /// SIGSTOP, SIGCONT of leader, sender, random
    Pause,
    /// Links between nodes are cut: one node alone, halves, ring, bridge, one way in or out
    Partition,
    /// Links between nodes lose packets, reset connections, are narrow
    Link,
    /// The wall clock of one node jumps or drifts
    Clock,
    /// Disks fail, are slow or full; state folders are damaged or lost; the log loses its tail
    Disk,
    /// Power is cut: unsynced data is lost
    Power,
    /// The relay vanishes, throttles, stalls, drops connections, floods
    Relay,
    /// Nodes are restarted in order; leadership is transferred
    Roll,
    /// Operators opt out, pause, cancel and trigger meanwhile
    Operator,
    /// Nodes are lost with their folders and replaced, added, or drained and removed, up to four new ones join in a run
    Membership,
    /// The certificate authority is rotated
    Certificates,
    /// A rolling upgrade: kill -9 and start as the next release, once back; the ledger's level is raised
    Upgrade,
    /// A backup is made; when everything is sent, all nodes are lost with their files, and the cluster is restored
    Restore,
}

impl Family {
    /// Returns the name of the family on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum FaultTarget {
    /// The leader at that time.
    #[display("the leader")]
    Leader,
    /// A node that is sending at that time.
    #[display("a sender")]
    Sender,
    /// The node of this number (modulo the number of nodes).
    #[display("any node")]
    Node(usize),
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultAction {
    /// `kill -9`. `inside`: between a final dot of the node and its answer. The node stays down while the fault lasts.
    Kill { target: FaultTarget, inside: bool },
    /// `kill -9` of all nodes.
    KillAll,
    /// SIGSTOP. `inside`: as for a kill.
    Pause { target: FaultTarget, inside: bool },
    /// Links between nodes are cut.
    Cut(PartitionShape),
    /// Links of a node are bad.
    Link { target: FaultTarget, how: LinkFault },
    /// The wall clock of a node, in libfaketime's notation.
    Clock { target: FaultTarget, offset: &'static str },
    /// The disk of a node.
    Disk { target: FaultTarget, how: DiskFault },
    /// Power loss of one node or of all nodes. `torn`: in the middle of a write to the log that is not synced.
    Power { target: Option<FaultTarget>, torn: bool },
    /// The relay, as a fault plan of the sink.
    Relay { name: &'static str, faults: &'static str },
    /// SIGTERM and start, one node after the other.
    Roll,
    /// Leadership is transferred.
    Transfer,
    /// An action of an operator.
    Operator(OperatorAction),
    /// A node is lost, removed, and replaced by a new one.
    Replace { target: FaultTarget },
    /// A node is added, or one that runs is drained and removed. `grows`: what is done if both are possible.
    Resize { target: FaultTarget, grows: bool },
    /// An operator rotates the certificate authority.
    Rotate,
    /// An operator makes a backup, unless one was made.
    BackUp,
    /// The next step of a rolling upgrade, on the node of this number among the nodes that are fit for it. `goes_back`:
    /// to the former release, if possible.
    Upgrade { number: usize, goes_back: bool },
}

impl FaultAction {
    /// Returns the kind of the fault in histories.
    pub fn kind(&self) -> FaultKind {
        match self {
            FaultAction::Kill { .. } | FaultAction::KillAll => FaultKind::Kill,
            FaultAction::Pause { .. } => FaultKind::Pause,
            FaultAction::Cut(_) => FaultKind::Partition,
            FaultAction::Link { .. } => FaultKind::Link,
            FaultAction::Clock { .. } => FaultKind::Clock,
            FaultAction::Disk {
                how:
                    DiskFault::SnapshotLost | DiskFault::SnapshotDamaged | DiskFault::SnapshotsDamaged | DiskFault::TornTail,
                ..
            } => FaultKind::Damage,
            FaultAction::Disk { .. } => FaultKind::Disk,
            FaultAction::Power { .. } => FaultKind::PowerCut,
            FaultAction::Relay { .. } => FaultKind::Relay,
            FaultAction::Roll => FaultKind::Restart,
            FaultAction::Transfer => FaultKind::Transfer,
            FaultAction::Operator(_) => FaultKind::Operator,
            FaultAction::Rotate => FaultKind::Rotation,
            FaultAction::BackUp => FaultKind::Backup,
            FaultAction::Replace { .. } => FaultKind::NodeLost,
            FaultAction::Resize { .. } => FaultKind::Grow,
            FaultAction::Upgrade { .. } => FaultKind::Upgrade,
        }
    }
}

/// Shape of a partition: the links that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionShape {
    /// One node from all others.
    Alone(FaultTarget),
    /// A minority that begins at this node, from the rest.
    Halves(usize),
    /// Each node is connected to its neighbours only.
    Ring,
    /// Two halves, and only this node is connected to both.
    Bridge(usize),
    /// Nothing reaches this node (true), or nothing leaves it.
    OneWay(FaultTarget, bool),
}

/// Fault of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// Percentage of packets that are lost.
    Loss(u8),
    /// Number of packets in a thousand that a reset answers.
    Reset(u16),
    /// Rate of the link in kilobits per second. Packets above this rate are lost.
    Narrow(u32),
}

/// Fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Every sync fails.
    Fails,
    /// Every sync takes this time.
    Slow(Duration),
    /// The disk is full.
    Full,
    /// The newest snapshot is lost while the node is down.
    SnapshotLost,
    /// The newest snapshot is damaged while the node is down.
    SnapshotDamaged,
    /// Every snapshot is damaged, after a kill.
    SnapshotsDamaged,
    /// The log ends inside its last batch, after a kill.
    TornTail,
}

/// The actions of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// Opts out recipients whose emails are due soon.
    OptOut,
    /// Pauses a run that is being sent, and resumes it.
    PauseAndResume,
    /// Cancels a run that is being sent.
    Cancel,
    /// Triggers a schedule by two clients with one request id, and by a third with another.
    Trigger,
    /// Creates one schedule three times.
    CreateAgain,
    /// Decides doubts: closes most of them as assumed, and sends few of them again.
    Decide,
    /// Sends dead letters again.
    Requeue,
    /// Backfills instants that fell into a pause, or instants that ran, which must open nothing.
    Backfill,
    /// Changes a schedule that is due much later, by two clients with one request id and by a third with another.
    Update,
    /// Deletes a schedule that is due much later.
    Delete,
    /// Sends a message by two clients with one key, and again with this key and another subject, where the first wins.
    Message,
    /// Puts a schedule by two clients over HTTP, and pauses it before its instants.
    PutAndPause,
    /// Creates a batch of schedules by two clients over HTTP.
    CreateBatch,
    /// Erases recipients over HTTP, before their email and while it may be on its way.
    Erase,
    /// Puts two versions of a template by two clients over HTTP, and sends messages by each.
    PutTemplate,
    /// Uploads an audience over HTTP, continues after broken connections, and sends to it.
    Upload,
}
