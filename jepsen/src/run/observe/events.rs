//! Follows the events of all tenants over HTTP through all faults, as an application does: it keeps the cursor of the
//! last event, and asks any node for what comes after it. At the end, the events must tell the state of each recipient
//! that the runs count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reveille_harness::AdminClient;
use reveille_proto::admin::v1 as api;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::final_state::all_runs;
use crate::run::workload::TENANTS;

/// Time for which a node may hold a request until there is an event, and the time for its answer.
const WAIT_SECONDS: u64 = 4;
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(100);
/// Time for reading the last events.
const LAST_WITHIN: Duration = Duration::from_secs(30);
/// Prefix of the types that name a new state of recipients.
const RECIPIENTS: &str = "EVENT_TYPE_RECIPIENTS_";

/// The state of each recipient by run and number, as events name it: `SENT`.
type StatesByRun = BTreeMap<String, BTreeMap<u32, String>>;

/// Readers of events, one for each tenant.
pub struct EventFollower {
    admin: AdminClient,
    following: JoinSet<()>,
    places: Vec<Arc<Mutex<Place>>>,
}

/// What a reader has read.
struct Place {
    tenant: &'static str,
    cursor: String,
    states: StatesByRun,
    /// Number of the node that is asked next.
    node: usize,
}

impl EventFollower {
    /// Starts to read from the oldest event.
    pub fn start(admin: &AdminClient) -> EventFollower {
        let mut following = JoinSet::new();
        let place = |tenant| Place { tenant, cursor: String::new(), states: StatesByRun::new(), node: 0 };
        let places: Vec<_> = TENANTS.map(|tenant| Arc::new(Mutex::new(place(tenant)))).into();
        for place in &places {
            let (place, admin) = (Arc::clone(place), admin.clone());
            following.spawn(async move {
                loop {
                    // A node that does not answer is one of the faults: the next one is asked.
                    let _ = place.lock().await.read(&admin, WAIT_SECONDS).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        EventFollower { admin: admin.clone(), following, places }
    }

    /// Reads the last events, and compares them with the counts of all runs. Nothing is sent any more.
    ///
    /// # Errors
    /// Fails if the events cannot be read, or tell something else than the counts.
    pub async fn compare(mut self) -> Result<()> {
        self.following.shutdown().await;
        let until = Instant::now() + LAST_WITHIN;
        let mut told = StatesByRun::new();
        for place in self.places {
            let mut place = place.lock().await;
            loop {
                match place.read(&self.admin, 0).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if Instant::now() > until => return Err(error.context("reading the last events")),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
            told.append(&mut place.states);
        }
        for run in all_runs(&self.admin).await? {
            let states = told.remove(&run.run).unwrap_or_default();
            let count = |name: &str| states.values().filter(|state| *state == name).count() as u32;
            let api::RunCounts { sent, dead, in_doubt, suppressed, assumed, expired, cancelled, .. } =
                run.counts.context("a run without counts")?;
            let counts = [
                ("SENT", sent),
                ("DEAD", dead),
                ("IN_DOUBT", in_doubt),
                ("SUPPRESSED", suppressed),
                ("ASSUMED", assumed),
                ("EXPIRED", expired),
                ("CANCELLED", cancelled),
            ];
            for (name, counted) in counts {
                let told = count(name);
                ensure!(told == counted, "{}: events tell {told} times {name}, the run counts {counted}", run.run);
            }
        }
        ensure!(told.is_empty(), "events tell of runs that are not listed: {:?}", told.keys());
        Ok(())
    }
}

impl Place {
    /// Reads the next events from one node. Returns true if there may be more.
    async fn read(&mut self, admin: &AdminClient, wait_seconds: u64) -> Result<bool> {
        self.node += 1;
        let (after, tenant) = (&self.cursor, self.tenant);
        let path = format!("/v1/events?tenant={tenant}&after={after}&wait={wait_seconds}s&pageSize=1000");
        let text = admin.another(self.node)?.get_json(&path, ANSWER_WITHIN).await?;
        let answer: Value = serde_json::from_str(&text)?;
        let field = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        for event in answer.get("events").and_then(Value::as_array).into_iter().flatten() {
            let Some(state) = field(event, "type").and_then(|name| name.strip_prefix(RECIPIENTS).map(str::to_owned))
            else {
                continue;
            };
            let run = field(event, "run").with_context(|| format!("an event without a run: {event}"))?;
            let numbers = field(event, "numbers").with_context(|| format!("an event without numbers: {event}"))?;
            let states = self.states.entry(run).or_default();
            for number in numbers_of(&numbers).with_context(|| format!("the numbers of {event}"))? {
                states.insert(number, state.clone());
            }
        }
        self.cursor = field(&answer, "cursor").context("an answer without a cursor")?;
        Ok(answer.get("more").and_then(Value::as_bool).unwrap_or_default())
    }
}

/// Reads a list of numbers and ranges: `0-511,600`.
fn numbers_of(text: &str) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>()?..=last.parse::<u32>()?);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!(numbers_of("0-2,7").expect("a list"), [0, 1, 2, 7]);
        assert!(numbers_of("").is_err() && numbers_of("1-").is_err());
    }
}
