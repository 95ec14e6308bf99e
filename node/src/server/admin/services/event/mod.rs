//! Events after a cursor: as pages, with or without waiting, and as a stream.
//!
//! Any node answers, from the state that it has applied: events have their names and their order from the log. A reader
//! that comes back too late gets an error; nothing is skipped silently.

mod cursor;
mod page;

use std::collections::BTreeSet;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_proto::admin::v1::{
    EventType, ListEventsRequest, ListEventsResponse, WatchEventsRequest, WatchEventsResponse,
};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use super::watch::{Watched, Watcher};
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, validate};
use cursor::EventCursor;
use page::{EventPage, EventQuery, check_is_kept, oldest};

/// Value of `after` for what happens from now on.
const LATEST: &str = "latest";
/// Maximum time that a request waits for an event.
const WAIT_MAX_MS: i64 = 60_000;
/// Minimum time between two looks for new events.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of events that a stream reads at once. A slow reader gets the next ones later.
const STREAM_PAGE: usize = 256;
/// A stream without events sends its cursor this often.
const SIGN_EVERY: Duration = Duration::from_secs(15);

serve! {
    event_service_server::EventService {
        [type WatchEventsStream = Watched<WatchEventsResponse>]
        tenant list_events(ListEventsRequest) -> ListEventsResponse;
        tenant watch_events(WatchEventsRequest) -> Watched<WatchEventsResponse>;
    }
}

impl Admin {
    async fn list_events(&self, request: ListEventsRequest, call: &Call) -> ApiResult<ListEventsResponse> {
        let ListEventsRequest { tenant, after, wait, types, single, page_size, stale } = request;
        let size = Paging::<()>::new("events", page_size, "")?.size;
        let query = EventQuery { tenant: validate::tenant(&tenant)?, types: event_types(&types)?, single, size };
        let wait_ms = wait.map_or(Some(0), validate::milliseconds).filter(|wait_ms| *wait_ms <= WAIT_MAX_MS);
        let wait_ms = wait_ms.ok_or_else(|| ApiError::of_field("wait", "is more than 60 s, or below zero"))?;
        let until = Instant::now() + Duration::from_millis(wait_ms.unsigned_abs());
        let after = After::parse(&after)?;
        let (start, freshness) = self.try_read(stale, call, |ledger| after.start(ledger, stale)).await?;
        let _place = (wait_ms > 0).then(|| self.stream_place(call)).transpose()?;
        let page = self.next_events(&query, call, start, until).await?;
        Ok(ListEventsResponse { events: page.events, cursor: page.cursor.to_string(), more: page.more, freshness })
    }

    async fn watch_events(&self, request: WatchEventsRequest, call: &Call) -> ApiResult<Watched<WatchEventsResponse>> {
        let WatchEventsRequest { tenant, after, types, single, stale } = request;
        let (tenant, types) = (validate::tenant(&tenant)?, event_types(&types)?);
        let query = EventQuery { tenant, types, single, size: STREAM_PAGE };
        let after = After::parse(&after)?;
        let (start, _) = self.try_read(stale, call, |ledger| after.start(ledger, stale)).await?;
        let following = call.clone();
        self.stream(call, async move |admin, watcher| admin.follow_events(&query, &following, start, &watcher).await)
    }

    /// Sends events until the reader is gone, or may not read them any more. The first answer is the cursor.
    async fn follow_events(
        &self,
        query: &EventQuery,
        call: &Call,
        mut cursor: EventCursor,
        watcher: &Watcher<WatchEventsResponse>,
    ) {
        let answer = |event, cursor| Ok::<_, Status>(WatchEventsResponse { event, cursor });
        if watcher.send(answer(None, cursor.to_string())).await.is_err() {
            return;
        }
        loop {
            let page = match self.next_events(query, call, cursor, Instant::now() + SIGN_EVERY).await {
                Ok(page) => page,
                Err(refused) => {
                    // The reader may have disconnected.
                    let _ = watcher.send(Err(refused.into())).await;
                    return;
                }
            };
            let sign = page.events.is_empty().then(|| answer(None, page.cursor.to_string()));
            let events = page.events.into_iter().map(|event| {
                let cursor = event.cursor.clone();
                answer(Some(event), cursor)
            });
            for answer in events.chain(sign) {
                if watcher.send(answer).await.is_err() {
                    return;
                }
            }
            cursor = page.cursor;
        }
    }

    /// Reads the next events. While there are none, it looks again after each entry, until the given time or until the
    /// node stops.
    async fn next_events(
        &self,
        query: &EventQuery,
        call: &Call,
        after: EventCursor,
        until: Instant,
    ) -> ApiResult<EventPage> {
        let mut applied = self.context.replica.applied();
        let mut cursor = after;
        loop {
            applied.mark_unchanged();
            let page = self.read_events(query, call, cursor).await?;
            if !page.events.is_empty() || Instant::now() >= until {
                return Ok(page);
            }
            cursor = page.cursor;
            if page.more {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                changed = timeout_at(until, applied.changed()) => match changed {
                    Ok(Ok(())) => sleep(PAUSE).await,
                    Ok(Err(_)) | Err(_) => return Ok(page),
                },
                () = self.stop.cancelled() => return Ok(page),
            }
        }
    }
}

/// Where a reader begins.
enum After {
    Oldest,
    Latest,
    Cursor(EventCursor),
}

impl After {
    fn parse(text: &str) -> ApiResult<After> {
        match text {
            "" => Ok(After::Oldest),
            LATEST => Ok(After::Latest),
            text => text.parse().map(After::Cursor).map_err(|()| {
                let form = "give one that an event or an answer had, `latest`, or nothing for the oldest event";
                ApiError::of_field("after", format!("{text:?} is not a cursor; {form}"))
            }),
        }
    }

    /// Returns the place after which to read. A fresh state has the entry of each cursor that was ever given.
    fn start(&self, ledger: &Ledger, stale: bool) -> ApiResult<EventCursor> {
        let applied = ledger.head().applied;
        match self {
            After::Oldest => Ok(oldest(ledger)),
            After::Latest => Ok(EventCursor::after_entry(applied)),
            After::Cursor(cursor) if cursor.index > applied && !stale => {
                let message = format!("{cursor} is of another cluster: the log of this one ends at {applied}");
                Err(ApiError::of_field("after", message))
            }
            After::Cursor(cursor) => check_is_kept(ledger, *cursor).map(|()| *cursor),
        }
    }
}

fn event_types(types: &[i32]) -> ApiResult<BTreeSet<EventType>> {
    let known = |number: &i32| EventType::try_from(*number).ok().filter(|known| *known != EventType::Unspecified);
    let known = types.iter().map(known).collect::<Option<_>>();
    known.ok_or_else(|| ApiError::of_field("types", "holds a type that this node does not know"))
}
