//! One connection: what comes in at one side goes out at the other, as the laws of its two links have it.
//!
//! Each direction reads pieces, says when each is due, and writes them in their order. The end of a connection and its
//! reset are pieces too: a cut holds them back like anything else.

use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::link::{Harm, Link};

/// A piece of a link with which something is wrong is about what a packet carries, so that shares mean what they mean
/// of packets.
const PIECE_BYTES: usize = 1_400;
/// Else it is as much as there is, up to this.
const PLAIN_BYTES: usize = 8 * 1_024;
/// Pieces on their way, in each direction of each connection: with [`PLAIN_BYTES`] 2 MiB. Then the sender waits, as
/// for any receiver that does not read.
const PIECES: usize = 256;
/// A node that runs takes a connection at once: its kernel does.
const CONNECTS_WITHIN: Duration = Duration::from_secs(3);
/// No fault is so long. Peers ask each other for a sign of life every second, so who is silent for so long, or reads
/// nothing, is gone for good.
const SILENT_FOR: Duration = Duration::from_secs(120);

/// What is on its way.
struct Piece {
    due: Instant,
    what: What,
}

enum What {
    Bytes(Vec<u8>),
    /// The sender says no more.
    End,
    /// The connection is no more.
    Broken,
}

/// Why a connection ends before both sides have said all: it is to be reset on both.
struct Broken;

/// Carries a connection to `behind` and what comes back, to its end.
pub async fn carry(mut near: TcpStream, behind: SocketAddr, there: &Link, back: &Link) {
    let (mut dice, mut dice_back) = (there.dice(), back.dice());
    // It takes a packet each way until there is a connection.
    sleep(there.law().delay(&mut dice) + back.law().delay(&mut dice_back)).await;
    if let Some(cut) = [there, back].into_iter().find(|link| link.law().cut) {
        cut.note(Harm::Held);
        while there.law().cut || back.law().cut {
            there.opens(Instant::now()).await;
            back.opens(Instant::now()).await;
        }
        if has_given_up(&near).await {
            return;
        }
    }
    let Ok(Ok(mut far)) = timeout(CONNECTS_WITHIN, TcpStream::connect(behind)).await else {
        return reset(&near);
    };
    // A heartbeat must not wait for company.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let carried = {
        let ((near_reads, near_writes), (far_reads, far_writes)) = (near.split(), far.split());
        tokio::try_join!(pump(near_reads, far_writes, there, dice), pump(far_reads, near_writes, back, dice_back))
    };
    if carried.is_err() {
        reset(&near);
        reset(&far);
    }
}

/// Makes the end of this stream, which comes when it is dropped, a reset.
pub fn reset(stream: &TcpStream) {
    // Where it fails the stream is reset already.
    let _ = stream.set_zero_linger();
}

/// Who has ended a connection before it was made never had one.
async fn has_given_up(stream: &TcpStream) -> bool {
    let state = timeout(Duration::ZERO, stream.ready(Interest::READABLE)).await;
    matches!(state, Ok(Ok(state)) if state.is_read_closed())
}

async fn pump(from: ReadHalf<'_>, to: WriteHalf<'_>, link: &Link, dice: StdRng) -> Result<(), Broken> {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::try_join!(read(from, sender, link, dice), write(receiver, to, link)).map(|_| ())
}

/// Reads to the end. Whatever nobody wants to write any more ends it too.
async fn read(from: ReadHalf<'_>, pieces: mpsc::Sender<Piece>, link: &Link, mut dice: StdRng) -> Result<(), Broken> {
    let mut buffer = vec![0_u8; PLAIN_BYTES];
    let mut last = Instant::now();
    loop {
        match timeout(SILENT_FOR, from.readable()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(Broken),
        }
        let law = link.law();
        let bytes = if law.is_default() { PLAIN_BYTES } else { PIECE_BYTES };
        let what = match from.try_read(buffer.get_mut(..bytes).unwrap_or_default()) {
            Ok(0) => What::End,
            Ok(read) => What::Bytes(buffer.get(..read).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => What::Broken,
        };
        if law.cut {
            link.note(Harm::Held);
        } else if law.resets(&mut dice) {
            link.note(Harm::Reset);
            return Err(Broken);
        }
        let (late, resent) = (law.delay(&mut dice), law.resent_after(&mut dice));
        for (harm, by) in [(Harm::Late, late), (Harm::Resent, resent)] {
            if !by.is_zero() {
                link.note(harm);
            }
        }
        // One after the other, as TCP has it: what is late holds up what comes behind it.
        last = last.max(Instant::now() + late + resent);
        let is_last = !matches!(what, What::Bytes(_));
        if pieces.send(Piece { due: last, what }).await.is_err() || is_last {
            return Ok(());
        }
    }
}

/// Writes what is due. A receiver that takes no more is found out by whoever reads from it.
async fn write(mut pieces: mpsc::Receiver<Piece>, mut to: WriteHalf<'_>, link: &Link) -> Result<(), Broken> {
    while let Some(Piece { due, what }) = pieces.recv().await {
        link.opens(due).await;
        match what {
            What::Bytes(bytes) => {
                link.squeezes(bytes.len()).await;
                // It may have been cut while they waited.
                link.opens(due).await;
                match timeout(SILENT_FOR, to.write_all(&bytes)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Ok(()),
                    Err(_) => return Err(Broken),
                }
            }
            // Where it fails the other side is gone, and that is told on the way back.
            What::End => drop(timeout(SILENT_FOR, to.shutdown()).await),
            What::Broken => return Err(Broken),
        }
    }
    Ok(())
}
