//! Commands of a script that only read the state.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::campaign::{Campaign, CampaignStage};
use reveille_ledger::claim_history::{ClaimEvent, ClaimEventKind};
use reveille_ledger::command::RefusalEffect;
use reveille_ledger::content::{Content, Recipient, Recipients};
use reveille_ledger::crash_backoff::allowances;
use reveille_ledger::erased::is_erased_key;
use reveille_ledger::explain::LastRefusal;
use reveille_ledger::ids::{Hash, NodeId, RunId};
use reveille_ledger::pool::{Day, PoolRow};
use reveille_ledger::template::{TemplateUse, TemplateVersion};
use reveille_ledger::{InstantOutcome, RecipientState, RelayShare};

use super::arguments::{Parsed, Words};
use super::reaction::{instant, state, word};
use super::test_ledger::TestLedger;
use crate::archived::archived;

impl TestLedger {
    /// Executes a command that changes nothing.
    pub fn show(&self, name: &str, words: &mut Words) -> Parsed<String> {
        match name {
            "run" => self.show_run(words),
            "rows" => Ok(self.show_rows()),
            "nodes" => Ok(self.show_nodes()),
            "authorities" => Ok(format!("{:?}\n", self.ledger.head().authority)),
            "allowances" => self.show_allowances(words),
            "schedule" => self.show_schedule(words),
            "list" => self.show_list(words),
            "history" => self.show_history(words),
            "due" => Ok(self.ledger.due().map(|(due, id)| format!("{} {id}\n", self.time(due))).collect()),
            "claimable" => self.show_claimable(words),
            "explain" => self.show_explanation(words),
            "pages" => Ok(self.show_pages()),
            "audiences" => Ok(self.show_audiences()),
            "contents" => Ok(self.show_contents()),
            "campaigns" => Ok(self.show_campaigns()),
            "templates" => Ok(self.show_templates()),
            "files" => Ok(self.show_files()),
            "tenants" => Ok(self.show_tenants()),
            "pools" => Ok(self.show_pools()),
            "etags" => Ok(self.show_etags()),
            "frozen" => self.show_frozen(words),
            "kept" => Ok(self.show_kept()),
            "answers" => Ok(format!("{} requests are remembered\n", self.remembered())),
            other => Err(format!("unknown word '{other}'").into()),
        }
    }

    fn show_run(&self, words: &mut Words) -> Parsed<String> {
        let id = self.run(words.need("run")?)?;
        let (mut text, counts) = match (self.ledger.run(id), self.ledger.summaries().get(&id)) {
            (Some(run), _) => {
                (format!("{id} of {}: {}, {} recipients:", run.label(), state(run), run.count), run.counts)
            }
            (None, Some(summary)) => {
                let ended = summary.state.word();
                let left = format!("left at {}", summary.archived_index);
                (format!("{id} of {}, {}: {ended}, {left}:", summary.name, summary.occurrence), summary.counts)
            }
            (None, None) => return Ok(self.show_archived(id)),
        };
        for state in RecipientState::ALL {
            if counts.get(state) > 0 {
                let _ = write!(text, " {} {}", counts.get(state), word(state));
            }
        }
        Ok(text + "\n")
    }

    fn show_etags(&self) -> String {
        let ledger = &self.ledger;
        let relays = ledger.relays().iter().map(|(name, relay)| format!("relay {name}: {}\n", relay.etag()));
        let tenants = ledger.tenants().iter().map(|(name, _)| format!("tenant {name}: {}\n", ledger.tenant_etag(name)));
        let pools = ledger.pools().iter().map(|(name, _)| format!("pool {name}: {}\n", ledger.pool_etag(name)));
        let campaigns = ledger.campaigns().iter();
        let campaigns = campaigns.map(|((_, name), one)| format!("campaign {name}: {}\n", ledger.campaign_etag(one)));
        relays.chain(tenants).chain(pools).chain(campaigns).collect()
    }

    /// The list of a schedule or run, and the opt-outs.
    fn show_list(&self, words: &mut Words) -> Parsed<String> {
        let of = words.need("schedule or run")?;
        let run = self.run(of).ok().and_then(|run| Some(self.ledger.run(run)?.audience));
        let schedule = self.schedule(of).ok().and_then(|id| Some(self.ledger.schedules().get(&id)?.audience));
        let audience = if of.parse::<RunId>().is_ok() { run } else { schedule.or(run) }.ok_or("no list")?;
        let mut text = match self.ledger.blob(&audience).and_then(Recipients::from_blob) {
            Some(Recipients::Inline(audience)) => {
                let row = |one: &Recipient| if one.is_erased() { "-".to_owned() } else { one.address.clone() };
                format!("list: {}\n", audience.recipients.iter().map(row).collect::<Vec<_>>().join(" "))
            }
            Some(Recipients::Sealed(seal)) => format!("parts: {:?}\n", seal.parts),
            None => "no list\n".to_owned(),
        };
        for ((tenant, key), row) in self.ledger.opted_out().iter() {
            let key = key.get(..8).filter(|_| is_erased_key(key)).unwrap_or(key);
            let _ = writeln!(text, "opted out: {tenant} {key} at {}", row.index);
        }
        Ok(text)
    }

    /// The contents of the state, by subject, with their references. An erased one is empty.
    fn show_contents(&self) -> String {
        let contents = self.ledger.blobs().iter().filter_map(|(_, stored)| {
            let content = Content::from_blob(&stored.bytes)?;
            let subject = if content == Content::default() { "empty".to_owned() } else { content.subject };
            let kept = if stored.kept_until > self.ledger.head().now { ", kept for archived runs" } else { "" };
            Some(format!("content {subject}: {} references{kept}\n", stored.references))
        });
        let mut contents: Vec<String> = contents.collect();
        contents.sort();
        contents.concat()
    }

    /// The run as the archive has it.
    fn show_archived(&self, id: RunId) -> String {
        let Some(part) = archived(&self.ledger, id) else {
            let may_have = |(first, last)| first <= id && id <= last;
            let parts = self.ledger.parts().iter().map(|(_, part)| part);
            let lost = parts.filter(|part| part.runs().is_some_and(may_have)).find_map(|part| part.whole_loss());
            return lost.map_or("no such run\n".into(), |at| format!("its part is lost since {}\n", self.time(at)));
        };
        let previous = |run: Option<RunId>| run.map_or("none".to_owned(), |run| run.to_string());
        let (kind, run_counts, former) = match (part.run(id), part.summaries().get(&id)) {
            (Some(run), _) => ("with details", run.counts, run.previous),
            (None, Some(summary)) => ("as a summary", summary.counts, summary.previous),
            (None, None) => return "in its part it is missing\n".into(),
        };
        let mut text = format!("{id} is in the archive {kind}, after {}:", previous(former));
        for state in RecipientState::ALL {
            if run_counts.get(state) > 0 {
                let _ = write!(text, " {} {}", run_counts.get(state), word(state));
            }
        }
        if part.run(id).is_some() {
            let claims = part.claims().iter().map(|(fence, _)| *fence);
            for fence in claims.chain(part.closed_claims().map(|(fence, _)| fence)) {
                let _ = write!(text, ", claim {}", self.fence_name(fence));
            }
        }
        text + "\n"
    }

    fn show_rows(&self) -> String {
        let open = self.ledger.claims().iter().map(|(fence, row)| (*fence, row.clone()));
        let rows = open.chain(self.ledger.closed_claims());
        let one = |(fence, row): (reveille_ledger::ids::Fence, reveille_ledger::Claim)| {
            let mut text =
                format!("{} of {} by {}: granted {:?}", self.fence_name(fence), row.chunk.page, row.owner, row.granted);
            let sets = [
                ("claimed", &row.claimed),
                ("in_doubt", &row.in_doubt),
                ("sent", &row.sent),
                ("assumed", &row.assumed),
            ];
            for (name, set) in sets.into_iter().filter(|(_, set)| !set.is_empty()) {
                let _ = write!(text, ", {name} {set:?}");
            }
            let lost = if row.was_revoked() { ", owner lost" } else { "" };
            let last = row.history.iter().last().map_or(fence.index, |event| event.index);
            format!("{text}{lost}, last changed by {last}\n")
        };
        rows.map(one).collect()
    }

    fn show_nodes(&self) -> String {
        let one = |(id, node): (&NodeId, &reveille_ledger::Node)| {
            let crashes: Vec<String> = node.crashes.times().iter().map(|at| self.time(*at)).collect();
            let crashes = if crashes.is_empty() { "never".to_owned() } else { crashes.join(", ") };
            let backoff = node
                .crashes
                .backoff_until(self.ledger.limits())
                .map_or(String::new(), |at| format!(", in back-off until {}", self.time(at)));
            let lost = if node.has_revoked_claims { ", lost" } else { "" };
            let drains = if node.drains { ", drains" } else { "" };
            let share = match node.share {
                RelayShare::None => String::new(),
                RelayShare::Reserved(index) => format!(", share reserved by {index}"),
                RelayShare::Open => format!(", has a share of {}", self.ledger.relay_shares()),
            };
            format!("{id}/{}: crashed {crashes}{backoff}{lost}{drains}{share}\n", node.incarnation.0)
        };
        self.ledger.nodes().iter().map(one).collect()
    }

    /// `allowances` of all nodes, or of the named ones: `allowances 1 2`; of a cluster with one node: `alone=yes`.
    fn show_allowances(&self, words: &mut Words) -> Parsed<String> {
        let several = words.key("alone").is_none();
        let named: Vec<NodeId> = words.rest().into_iter().map(|id| Ok(NodeId(id.parse()?))).collect::<Parsed<_>>()?;
        let nodes = self.ledger.nodes().iter().map(|(id, node)| (*id, node));
        let live = nodes.filter(|(id, _)| named.is_empty() || named.contains(id));
        let parts = allowances(live, self.ledger.limits(), several, self.ledger.head().now);
        let parts: Vec<String> = parts.iter().map(|(id, part)| format!("{id}: {}/8", part.eighths())).collect();
        Ok(format!("{}\n", parts.join(", ")))
    }

    fn show_schedule(&self, words: &mut Words) -> Parsed<String> {
        let id = self.schedule(words.need("schedule")?)?;
        let Some(schedule) = self.ledger.schedules().get(&id) else { return Ok("no such schedule\n".into()) };
        let plan = &schedule.plan;
        let next = plan.next.as_ref().map_or("none".to_owned(), |next| instant(self, next));
        let through = self.time(plan.fired_through);
        Ok(format!(
            "{} ({}): {:?}, plan {}, next {next}, fired through {through}, opened {}{}\n",
            schedule.name,
            id,
            schedule.state,
            plan.version,
            plan.opened,
            self.ledger.waits_for(id).map_or(String::new(), |run| format!(", waits for {run}")),
        ))
    }

    fn show_history(&self, words: &mut Words) -> Parsed<String> {
        let id = self.schedule(words.need("schedule")?)?;
        let rows = self.ledger.history().iter().filter(|((schedule, _), _)| *schedule == id);
        let one = |((_, occurrence), history): (&(_, reveille_ledger::ids::OccurrenceName), &InstantOutcome)| {
            match history {
                InstantOutcome::Opened(run) => format!("{occurrence}: opened as {run}\n"),
                InstantOutcome::Explained { instants, reason, index } if instants.count() == 1 => {
                    format!("{occurrence}: {reason:?}, said {index}\n")
                }
                InstantOutcome::Explained { instants, reason, index } => {
                    let (last, count) = (instants.last(occurrence), instants.count());
                    format!("{occurrence} to {last}: {count} {reason:?}, said {index}\n")
                }
                InstantOutcome::Archived { instants, ahead_min_ms, ahead_max_ms, until } => {
                    let (last, count) = (instants.last(occurrence), instants.count());
                    format!(
                        "{occurrence} to {last}: {count} archived, ahead by {ahead_min_ms} to {ahead_max_ms} ms, known until {}\n",
                        self.time(*until)
                    )
                }
                InstantOutcome::ArchivedTrigger { run, until, .. } => {
                    format!("{occurrence}: archived {run}, known until {}\n", self.time(*until))
                }
            }
        };
        Ok(rows.map(one).collect())
    }

    /// Pending slots that a claim would get now.
    fn show_claimable(&self, words: &mut Words) -> Parsed<String> {
        let run = self.run(words.need("run")?)?;
        let (page, whole, _) = self.ledger.page_of(run).ok_or("no such run")?;
        let now = self.ledger.head().now;
        let chunk = self.ledger.chunks().get(&page.chunk(0)).ok_or("no chunk")?;
        let slots = chunk.claimable(now).and_not(&reveille_ledger::unclaimable_slots(whole, 0, now));
        let wave = chunk.next_wave(now).map_or("none".to_owned(), |time| self.time(time));
        Ok(format!("{slots:?}, next wave {wave}\n"))
    }

    fn show_explanation(&self, words: &mut Words) -> Parsed<String> {
        let run = self.run(words.need("run")?)?;
        let number = words.need("recipient")?.parse()?;
        let part = if self.ledger.run(run).is_none() { archived(&self.ledger, run) } else { None };
        let Some(explanation) = part.as_ref().unwrap_or(&self.ledger).explain_recipient(run, number) else {
            return Ok("no such recipient\n".into());
        };
        let mut text = format!("{}\n", word(explanation.state));
        for claim in explanation.claims {
            let (name, at) = (self.fence_name(claim.fence), self.time(claim.claimed_at));
            let _ = writeln!(text, "  {name} by {} at {at}", claim.owner);
            for event in claim.history {
                let ClaimEvent { index, at, what, to, entries, .. } = event;
                let entries = if entries > 1 { format!(", the last of {entries} entries") } else { String::new() };
                let _ =
                    writeln!(text, "    [{index}] at {}: {}, {}{entries}", self.time(at), describe(&what), word(to));
            }
        }
        for (index, event) in explanation.run_events {
            let _ = writeln!(text, "  [{index}] at {}: {:?}", self.time(event.at), event.what);
        }
        if let Some(until) = explanation.waits_until {
            let _ = writeln!(text, "  waits until {}", self.time(until));
        }
        if let Some(LastRefusal { code, enhanced, effect }) = explanation.last_refusal
            && matches!(explanation.state, RecipientState::Pending | RecipientState::Expired)
        {
            let enhanced = enhanced.map(|enhanced| format!(" {enhanced}"));
            let enhanced = enhanced.unwrap_or_default();
            let _ = match (effect, explanation.state) {
                (RefusalEffect::BackOff, _) => writeln!(text, "  deferred: {code}"),
                (_, RecipientState::Expired) => writeln!(text, "  refused last: {code}{enhanced} ({effect:?})"),
                _ => Ok(()),
            };
        }
        if let Some(letter) = explanation.dead {
            let _ = writeln!(text, "  dead: {} {}", letter.code, letter.text());
        }
        if let Some(run) = explanation.kept_apart_by {
            let _ = writeln!(text, "  kept apart by {run}");
        }
        let place = self.slot_of(run, number);
        if let Some(opted_out) = place.as_ref().and_then(|place| self.ledger.opt_out_of(place)) {
            let _ = writeln!(text, "  opted out at {}", opted_out.index);
        }
        if let Some(back) = place.and_then(|place| self.ledger.taken_back().get(&place)) {
            let _ = writeln!(text, "  taken back at {}: {}", back.index, back.reason);
        }
        Ok(text)
    }

    /// Returns tenant and address key of a recipient of a listed audience, which is its key among the opt-outs.
    fn slot_of(&self, run: RunId, number: u32) -> Option<(String, String)> {
        let (_, page, place) = self.ledger.page_of(run)?;
        let Recipients::Inline(audience) = Recipients::from_blob(self.ledger.blob(&page.runs[place].audience)?)? else {
            return None;
        };
        let key = audience.recipients.get(number as usize)?.key.clone();
        Some((page.tenant.to_string(), key))
    }

    /// Sealed audiences by name, and the seals whose parts are needed.
    fn show_audiences(&self) -> String {
        let known = self.ledger.audiences().iter();
        let known =
            known.map(|((tenant, name), one)| format!("{tenant}/{name}: {} rows, sealed by {}\n", one.rows, one.index));
        let needed = self.ledger.seals().map(|seal| format!("needed: {} parts of {}\n", seal.parts.len(), seal.name));
        known.chain(needed).collect()
    }

    /// Templates: each version with its users, and the contents that are stored.
    fn show_templates(&self) -> String {
        let mut text = String::new();
        for ((tenant, name), template) in self.ledger.templates().iter() {
            let version = |known: &TemplateVersion| {
                let subject = self.subject(&known.content);
                format!("{}: {subject}, put by {}, {} users", known.version, known.index, known.users)
            };
            let versions: Vec<String> = template.versions.iter().map(version).collect();
            let _ = writeln!(text, "{tenant}/{name}: {}", versions.join("; "));
        }
        for (_, schedule) in self.ledger.schedules().iter() {
            let template = schedule.settings.template.as_ref().map_or("none".to_owned(), TemplateUse::to_string);
            let _ = writeln!(text, "{}: template {template}, {}", schedule.name, self.subject(&schedule.content));
        }
        for (id, _, run) in self.ledger.runs() {
            let _ = writeln!(text, "{id} of {}: {}", run.name, self.subject(&run.content));
        }
        text
    }

    /// The files that nodes must keep, and what each run needs.
    fn show_files(&self) -> String {
        let needed: BTreeSet<Hash> = self.ledger.needed_files().collect();
        let mut text = format!("{} files are needed\n", needed.len());
        for (id, _, run) in self.ledger.runs() {
            let count = self.ledger.files_of_chunk(run, run.first / CHUNK).count();
            let blocked = run.blocked.map_or(String::new(), |blocked| format!(", blocked: {}", blocked.file));
            let _ = writeln!(text, "{id} of {}: {count}{blocked}", run.label());
        }
        text
    }

    fn subject(&self, content: &Hash) -> String {
        let content = self.ledger.blob(content).and_then(Content::from_blob);
        content.map_or("no content".to_owned(), |content| format!("'{}'", content.subject))
    }

    /// Pools with settings: today's cap, how much of it is used, and how much more may be claimed.
    fn show_pools(&self) -> String {
        let now = self.ledger.head().now;
        let line = |(pool, row): (&String, &PoolRow)| {
            let (day, claimed) = (Day::of(now), self.ledger.claimed_by_pool(pool));
            let (number, cap, spent) = (day.0 - row.first.0 + 1, row.cap(day), row.spent(day));
            let room = self.ledger.remaining_today(pool, now);
            let (set, headers) = (row.index, if row.reveille_headers { "" } else { ", no headers" });
            if row.caps.is_empty() {
                let is = if row.is_default() { "reset" } else { "set" };
                return format!("{pool}: {is} by {set}, spent {spent}, claimed {claimed}{headers}\n");
            }
            format!(
                "{pool}: day {number}, cap {cap:?}, spent {spent}, claimed {claimed}, room {room:?}, set by {set}{headers}\n"
            )
        };
        self.ledger.pools().iter().map(line).collect()
    }

    /// Tenants by name: their limits, and their number of claimed recipients.
    fn show_tenants(&self) -> String {
        let line = |name: String| {
            let tenant = self.ledger.tenant(&name);
            let claimed = self.ledger.claimed_by_tenant(&name);
            let (rate, at_once) = (tenant.rate(), tenant.at_once());
            let set = if tenant.index > 0 { format!(", set by {}", tenant.index) } else { String::new() };
            let pools: String = tenant.pools.iter().map(|pool| format!(", pool {pool}")).collect();
            format!(
                "{name}: rate {rate:?}, at once {at_once:?}, share {}, claimed {claimed}{pools}{set}\n",
                tenant.share
            )
        };
        self.ledger.tenant_names_from(String::new()).map(line).collect()
    }

    /// Campaigns by name: their stage and their run.
    fn show_campaigns(&self) -> String {
        let line = |(name, one): (&(String, String), &Campaign)| {
            let run = one.stage.schedule().and_then(|schedule| self.ledger.run_of_campaign(schedule));
            let run = run.map_or("no run".to_owned(), |run| format!("run {run}"));
            let cause = match &one.stage {
                CampaignStage::Missed { cause, .. } => format!(": {cause}"),
                _ => String::new(),
            };
            let launch = match &one.stage {
                CampaignStage::Missed { .. } | CampaignStage::Cancelled { .. } => one.stage.launch(),
                _ => None,
            };
            let launch = launch.map(|launch| format!(", launched by {}", launch.index)).unwrap_or_default();
            format!("{}: {}{launch} for {}, {run}{cause}\n", name.1, one.stage.word(), self.time(one.due))
        };
        self.ledger.campaigns().iter().map(line).collect()
    }

    /// Number of rows by table.
    fn show_kept(&self) -> String {
        let ledger = &self.ledger;
        let blobs = ledger.all_rows().filter(|(key, _)| key.first() == Some(&5)).count();
        format!(
            "{} pages, {} chunks, {} open rows, {} closed rows, {} letters, {blobs} blobs, {} names, {} summaries, {} parts\n",
            ledger.pages().len(),
            ledger.chunks().len(),
            ledger.claims().len(),
            ledger.closed_claims().count(),
            ledger.dead().len(),
            ledger.history().len(),
            ledger.summaries().len(),
            ledger.parts().len(),
        )
    }

    /// Content of a run, and the content that its schedule would send now.
    fn show_frozen(&self, words: &mut Words) -> Parsed<String> {
        let id = self.run(words.need("run")?)?;
        let run = self.ledger.run(id).ok_or("no such run")?;
        let schedule = self.ledger.schedules().get(&run.schedule).ok_or("no such schedule")?;
        let subject = |hash| {
            let content = self.ledger.blob(hash).and_then(reveille_ledger::content::Content::from_blob);
            content.map_or("content is gone".to_owned(), |content| content.subject)
        };
        let (mine, others) = (subject(&run.content), subject(&schedule.content));
        let catch_up = (run.policies.catch_up, schedule.settings.policies.catch_up);
        Ok(format!(
            "{id}: '{mine}' to {}, catch up {:?}; the next one: '{others}' to {}, catch up {:?}\n",
            run.count, catch_up.0, schedule.recipients, catch_up.1
        ))
    }

    fn show_pages(&self) -> String {
        let open: Vec<_> = self.ledger.open_pages().map(|(id, _)| id).collect();
        let one = |(id, page): (&reveille_ledger::ids::PageId, &reveille_ledger::Page)| {
            let word = if open.contains(id) { "open" } else { "closed" };
            format!("{id}: {} runs, {} slots, due {}, {word}\n", page.runs.len(), page.slots, self.time(page.due))
        };
        self.ledger.pages().iter().map(one).collect()
    }

    /// Number of stored answers: rows of the table with that tag.
    fn remembered(&self) -> usize {
        self.ledger.all_rows().filter(|(key, _)| key.first() == Some(&12)).count()
    }
}

fn describe(what: &ClaimEventKind) -> String {
    match what {
        ClaimEventKind::Refused { code, effect, text, .. } => format!("refused {code} {text} ({effect:?})"),
        ClaimEventKind::Released(Some(why)) => format!("released: {why:?}"),
        ClaimEventKind::Released(None) => "released, whyever".to_owned(),
        ClaimEventKind::Unsendable(cause) => format!("unsendable: {}", cause.text()),
        ClaimEventKind::InDoubt(doubt) => format!("in doubt: {doubt:?}"),
        ClaimEventKind::Assumed(by) => format!("assumed by {by:?}"),
        ClaimEventKind::Resent(by) => format!("to be sent again, by {by:?}"),
        other => format!("{other:?}"),
    }
}
