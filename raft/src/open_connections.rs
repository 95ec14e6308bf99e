//! The open connections of one listener, and which of them ends when a new caller finds all places taken.
//!
//! A connection keeps its place by a TLS handshake, and at the admin port by a permitted call within
//! [`PERMISSION_LASTS`]. If a caller waits, [`Incoming`](crate::listen::Incoming) ends one that does not. So new callers
//! are served, whatever silent callers, answered pings or the connections of a revoked token do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reveille_ledger::ids::TokenId;
use tokio_util::sync::CancellationToken;

/// Maximum number of open connections of one listener, about 30 KB each. Further connections wait in the system's
/// queue.
pub const CONNECTIONS_MAX: usize = 512;
/// Maximum number of connections that keep their places by calls of one token.
pub const CONNECTIONS_OF_TOKEN_MAX: usize = 64;
/// Maximum number of connections that keep their places by calls of tokens that do not span all tenants. The others
/// are reserved for tokens that do.
pub const CONNECTIONS_OF_TENANTS_MAX: usize = CONNECTIONS_MAX - CONNECTIONS_OF_TOKEN_MAX;
/// Maximum number of connections of one listener whose clients have no certificate although it asks for one.
pub(crate) const JOINING_MAX: usize = 16;
/// Time after a permitted call for which its connection keeps its place.
const PERMISSION_LASTS: Duration = Duration::from_secs(60);

/// The token of a permitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallingToken {
    /// Its id.
    pub id: TokenId,
    /// True if it spans all tenants.
    pub spans_tenants: bool,
}

/// What keeps the place of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Nothing: its handshake is not over, or it had no permitted call.
    None,
    /// Nothing, for a client without a certificate, except while its request is handled.
    Joining { is_handled: bool },
    /// It may stay until its client ends it.
    Lasting,
    /// A call that was permitted at this time. `None`: of a caller without a token.
    Call(Instant, Option<CallingToken>),
}

impl Hold {
    /// Returns the order in which connections end; `None`: it keeps its place.
    fn ends(self, now: Instant) -> Option<Option<Instant>> {
        match self {
            Hold::None | Hold::Joining { is_handled: false } => Some(None),
            Hold::Joining { is_handled: true } | Hold::Lasting => None,
            Hold::Call(at, _) => (now.duration_since(at) >= PERMISSION_LASTS).then_some(Some(at)),
        }
    }

    /// Returns the token that keeps the place.
    fn token(self, now: Instant) -> Option<CallingToken> {
        match self {
            Hold::Call(_, token) if self.ends(now).is_none() => token,
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Place {
    hold: Hold,
    /// Ends the connection.
    cut: CancellationToken,
}

/// The open connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections {
    /// True if only permitted calls keep a place.
    needs_calls: bool,
    places: Mutex<Places>,
}

/// The places by the numbers of their connections, which say in which order these were accepted.
#[derive(Debug, Default)]
struct Places {
    last: u64,
    open: BTreeMap<u64, Place>,
}

impl OpenConnections {
    pub fn new(needs_calls: bool) -> Arc<OpenConnections> {
        Arc::new(OpenConnections { needs_calls, places: Mutex::default() })
    }

    /// Adds a connection that `cut` ends. Returns its number.
    pub fn add(&self, cut: CancellationToken) -> u64 {
        let places = &mut *self.places.lock();
        places.last += 1;
        places.open.insert(places.last, Place { hold: Hold::None, cut });
        places.last
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, number: u64) {
        self.places.lock().open.remove(&number);
    }

    /// Ends the oldest connection that nothing keeps: one without any permitted call first. Returns false if there is
    /// none.
    pub fn end_one(&self, now: Instant) -> bool {
        let open = &mut self.places.lock().open;
        let ends = open.iter().filter_map(|(number, place)| Some((place.hold.ends(now)?, *number))).min();
        ends.is_some_and(|(_, number)| end(open, number))
    }

    /// The handshake of the connection is over, or it has none.
    pub fn keep(&self, number: u64) {
        if !self.needs_calls
            && let Some(place) = self.places.lock().open.get_mut(&number)
        {
            place.hold = Hold::Lasting;
        }
    }

    /// The client of the connection has no certificate. Another such connection ends if there are too many. Returns
    /// false if the requests of all others are being handled.
    pub fn join(&self, number: u64) -> bool {
        self.set_joining(number, false)
    }

    /// The request to join on the connection is handled until the result is dropped. `None`: there are too many of
    /// them.
    pub fn handle_join(self: &Arc<Self>, number: u64) -> Option<HandledJoin> {
        if !self.set_joining(number, true) {
            self.set_joining(number, false);
            return None;
        }
        Some(HandledJoin { open: Arc::clone(self), number })
    }

    fn set_joining(&self, number: u64, is_handled: bool) -> bool {
        let open = &mut self.places.lock().open;
        // An ended connection has no place any more.
        let Some(place) = open.get_mut(&number) else { return true };
        place.hold = Hold::Joining { is_handled };
        let joining = open.values().filter(|place| matches!(place.hold, Hold::Joining { .. })).count();
        let mut idle = open.iter().filter(|(_, place)| place.hold == Hold::Joining { is_handled: false });
        let oldest = idle.find(|(other, _)| **other != number).map(|(other, _)| *other);
        joining <= JOINING_MAX || oldest.is_some_and(|other| end(open, other))
    }

    /// A call on the connection is permitted. Returns false if its token, or all tokens of tenants together, keep as
    /// many places as they may: then the call is to be refused.
    pub fn permit(&self, number: u64, token: Option<CallingToken>, now: Instant) -> bool {
        let open = &mut self.places.lock().open;
        let Some(place) = open.get(&number) else { return true };
        if let Some(token) = token
            && place.hold.token(now) != Some(token)
        {
            let others = open.iter().filter(|(other, _)| **other != number);
            let (mut of_token, mut of_tenants) = (0, 0);
            for other in others.filter_map(|(_, place)| place.hold.token(now)) {
                of_token += usize::from(other.id == token.id);
                of_tenants += usize::from(!other.spans_tenants);
            }
            let has_place = token.spans_tenants || of_tenants < CONNECTIONS_OF_TENANTS_MAX;
            if of_token >= CONNECTIONS_OF_TOKEN_MAX || !has_place {
                return false;
            }
        }
        if let Some(place) = open.get_mut(&number) {
            place.hold = Hold::Call(now, token);
        }
        true
    }

    /// A call with this token was denied: it is revoked or has expired.
    pub fn deny(&self, number: u64, token: TokenId) {
        if let Some(place) = self.places.lock().open.get_mut(&number)
            && matches!(place.hold, Hold::Call(_, Some(held)) if held.id == token)
        {
            place.hold = Hold::None;
        }
    }
}

/// A request to join that is being handled. It also ends without an answer: when it is refused, or its stream is reset.
#[derive(Debug)]
pub(crate) struct HandledJoin {
    open: Arc<OpenConnections>,
    number: u64,
}

impl Drop for HandledJoin {
    fn drop(&mut self) {
        self.open.set_joining(self.number, false);
    }
}

fn end(open: &mut BTreeMap<u64, Place>, number: u64) -> bool {
    open.remove(&number).is_some_and(|place| {
        place.cut.cancel();
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u64, spans_tenants: bool) -> Option<CallingToken> {
        Some(CallingToken { id: TokenId(id), spans_tenants })
    }

    /// Opens connections of a token, and returns those that keep their places.
    fn opened(
        open: &OpenConnections,
        count: usize,
        token: Option<CallingToken>,
        now: Instant,
    ) -> Vec<(u64, CancellationToken)> {
        let cuts = std::iter::repeat_with(CancellationToken::new).take(count);
        let opened = cuts.map(|cut| (open.add(cut.clone()), cut));
        opened.filter(|(number, _)| open.permit(*number, token, now)).collect()
    }

    #[test]
    fn tokens_of_tenants_leave_places_to_operators() {
        let (open, now) = (OpenConnections::new(true), Instant::now());
        let mut of_tenants = 0;
        for id in 0..20 {
            let kept = opened(&open, CONNECTIONS_MAX, token(id, false), now);
            assert!(kept.len() <= CONNECTIONS_OF_TOKEN_MAX);
            of_tenants += kept.len();
        }
        assert_eq!(of_tenants, CONNECTIONS_OF_TENANTS_MAX);
        assert_eq!(opened(&open, CONNECTIONS_MAX, token(20, true), now).len(), CONNECTIONS_OF_TOKEN_MAX);
    }

    #[test]
    fn joining_connection_keeps_its_place_only_while_its_request_is_handled() {
        let open = OpenConnections::new(false);
        let connect = || {
            let cut = CancellationToken::new();
            (open.add(cut.clone()), cut)
        };
        let joining: Vec<_> = std::iter::repeat_with(connect).take(JOINING_MAX).collect();
        let mut handled: Vec<_> = joining.iter().map(|(number, _)| open.handle_join(*number)).collect();
        assert!(handled.iter().all(Option::is_some));
        let (refused, _) = connect();
        assert!(!open.join(refused) && open.handle_join(refused).is_none(), "all are handled");
        open.remove(refused);
        handled.pop();
        let (next, _) = connect();
        assert!(open.join(next) && joining[JOINING_MAX - 1].1.is_cancelled(), "one request has ended");
    }

    #[test]
    fn connection_without_recent_permitted_call_ends_first() {
        let (open, now) = (OpenConnections::new(true), Instant::now());
        let silent = opened(&open, 1, token(1, false), now).remove(0);
        let revoked = opened(&open, 1, token(2, false), now).remove(0);
        let stranger = CancellationToken::new();
        open.add(stranger.clone());
        let joined = opened(&open, 1, token(3, false), now).remove(0);
        assert!(open.end_one(now) && stranger.is_cancelled(), "it had no permitted call");
        assert!(!open.end_one(now), "all keep their places");
        open.deny(revoked.0, TokenId(1));
        assert!(!open.end_one(now), "another token was denied");
        open.deny(revoked.0, TokenId(2));
        assert!(open.end_one(now) && revoked.1.is_cancelled());
        let later = now + PERMISSION_LASTS;
        let before = later - Duration::from_millis(1);
        assert!(open.permit(joined.0, token(3, false), before) && !open.end_one(before));
        assert!(open.end_one(later) && silent.1.is_cancelled() && !joined.1.is_cancelled());
    }
}
