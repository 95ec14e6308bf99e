//! What can be broken, and whom it may meet.

use std::fmt;
use std::time::Duration;

/// Families of faults, as they are chosen on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Family {
    /// kill -9: leader, sender, random, all; between dot and 250; back within the lease or long after it
    Kill,
    /// SIGSTOP, SIGCONT of leader, sender, random
    Pause,
    /// Links between nodes are cut: one node alone, halves, ring, bridge, one way in or out
    Partition,
    /// Links between nodes lose packets, reset connections, are narrow, are slow
    Link,
    /// The wall clock of one node jumps or drifts
    Clock,
    /// Disks fail, are slow or full; state folders are damaged or lost; the log loses its tail
    Disk,
    /// Power is cut: what was not synced is gone
    Power,
    /// The relay vanishes, throttles, stalls, drops connections, floods
    Relay,
    /// Nodes are restarted in order; leadership is handed over
    Roll,
    /// Operators opt out, pause, cancel and trigger in the middle
    Operator,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 10] = [
        Family::Kill,
        Family::Pause,
        Family::Partition,
        Family::Link,
        Family::Clock,
        Family::Disk,
        Family::Power,
        Family::Relay,
        Family::Roll,
        Family::Operator,
    ];
}

/// Whom a blow is to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Who leads then.
    Leader,
    /// Who is handing a mail off then.
    Sender,
    /// The node of this number, counted round.
    Node(usize),
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Whom::Leader => "the leader",
            Whom::Sender => "a sender",
            Whom::Node(_) => "any node",
        })
    }
}

/// One thing to break.
#[derive(Clone, Debug, PartialEq)]
pub enum Blow {
    /// `kill -9`; at the very moment between a final dot of its and the answer, where `inside` says so. What it
    /// lasts is how long the node is down.
    Kill { whom: Whom, inside: bool },
    /// `kill -9` of all nodes.
    KillAll,
    /// SIGSTOP; `inside` as of a kill.
    Pause { whom: Whom, inside: bool },
    /// Links between nodes are cut.
    Cut(Shape),
    /// Links of a node are bad.
    Link { whom: Whom, how: Bad },
    /// The wall clock of a node, in the words of libfaketime.
    Clock { whom: Whom, offset: &'static str },
    /// The disk of a node.
    Disk { whom: Whom, how: DiskBlow },
    /// The power of this node fails, or of all; `torn`: in the middle of a write to the log that was not synced.
    Power { whom: Option<Whom>, torn: bool },
    /// The relay, as a fault plan of the sink.
    Relay { name: &'static str, faults: &'static str },
    /// SIGTERM and start, one node after the other.
    Roll,
    /// Leadership is handed over.
    Transfer,
    /// An operator does something.
    Operator(Order),
}

/// Which links are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One node from all others.
    Alone(Whom),
    /// A minority, that begins at this node, from the rest.
    Halves(usize),
    /// Each node hears its neighbours only.
    Ring,
    /// Two halves that only this node hears both of.
    Bridge(usize),
    /// Nothing comes in to this node.
    OneWayIn(Whom),
    /// Nothing of this node comes out.
    OneWayOut(Whom),
}

/// How a link is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// So many of a hundred packets are lost.
    Loss(u8),
    /// So many of a thousand packets are answered by a reset.
    Reset(u16),
    /// So many kilobits a second: what waits is late, and between hosts lost in the end.
    Narrow(u32),
    /// All is late by this, give or take a half of it.
    Delay(Duration),
}

/// What befalls a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskBlow {
    /// Every sync fails.
    Fails,
    /// Every sync takes so long.
    Slow(Duration),
    /// Nothing fits any more.
    Full,
    /// The folder of the state mirror is lost while the node is down.
    StateLost,
    /// It is damaged.
    StateDamaged,
    /// The log ends in the midst of its last batch, after a kill.
    TornTail,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Opts out some whose mail is about to go.
    OptOut,
    /// Pauses a run that is being sent, and lets it go on.
    PauseAndResume,
    /// Cancels a run that is being sent.
    Cancel,
    /// Triggers a schedule by two clients with the same request id, and by a third with another.
    Trigger,
    /// Creates what there is already.
    CreateAgain,
    /// Decides about some who are in doubt: mostly as assumed, few are sent again.
    Decide,
    /// Sends dead letters again.
    Requeue,
    /// Opens instants that fell into a pause; or asks for what ran, which opens nothing.
    Backfill,
    /// Changes a schedule that is due much later, by two clients with one request id and by a third with another.
    Update,
    /// Deletes one.
    Delete,
}
